"""The page on tensor engines, followed to the letter."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError, InvalidRequestError, ModelLoadError
from penstock.models.config.pbtxt import parse_pbtxt
from penstock.testing import running

_PAGE = (Path(__file__).parents[3] / "docs" / "tensor-engines.md").read_text("utf-8")
_FILES = dict(re.findall(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)```$", _PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.slow
def test_its_own_tests_pass(tmp_path: Path) -> None:
    for name, text in _FILES.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_engine_has_at_most_80_lines() -> None:
    assert len(_FILES["penstock_linear.py"].splitlines()) <= 80


# -- the second engine ----------------------------------------------------------------------------

_MOODS = {"labels": ["sad", "glad"], "words": {"rain": [1, 0], "sun": [0, 1]}}
(_CONFIG,) = re.findall(r"^```protobuf\n(.*?)```$", _PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def bag() -> ModuleType:
    module = ModuleType("penstock_bag")
    exec(compile(_FILES["penstock_bag.py"], "penstock_bag.py", "exec"), module.__dict__)
    return module


async def _ask(bag: ModuleType, folder: Path, config: ModelConfig, **inputs: Any) -> Any:
    async with running(bag.BagBackend, config, folder) as instance:
        (response,) = [response async for response in instance.infer(inputs)]
    return {name: tensor.numpy().tolist() for name, tensor in response.outputs.items()}


async def test_texts_are_classified(bag: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps(_MOODS))
    answer = await _ask(bag, tmp_path, ModelConfig("bag"), text=[["sun"], ["rain sun rain"]])
    assert answer == {"label": [[b"glad"], [b"sad"]], "scores": [[0, 1], [2, 1]]}


async def test_its_configuration_declares_what_may_be_missing(
    bag: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "model.json").write_text(json.dumps(_MOODS))
    config, warm = parse_pbtxt(_CONFIG.encode(), "config.pbtxt"), np.array([[2]], np.float32)
    asked = await _ask(bag, tmp_path, config, text=[["sun moon"]], temperature=warm)
    assert asked["scores"] == [[0.25, 0.75]]
    assert (await _ask(bag, tmp_path, config, text=[["moon"]]))["scores"] == [[0.5, 0.5]]


async def test_a_text_that_is_none_is_refused(bag: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps(_MOODS))
    with pytest.raises(InvalidRequestError, match="input 'text' is no UTF-8"):
        await _ask(bag, tmp_path, ModelConfig("bag"), text=[[b"\xff"]])


async def test_its_parameter_is_checked(bag: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps(_MOODS))
    config = parse_pbtxt(_CONFIG.replace("0.5", "half").encode(), "config.pbtxt")
    with pytest.raises(ConfigError, match="parameter 'unknown': could not convert"):
        await _ask(bag, tmp_path, config, text=[["sun"]])


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"labels": 1, "words": {}}', '{"labels": ["a"], "words": {"b": []}}']
)
async def test_its_damaged_models_are_refused(bag: ModuleType, tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ModelLoadError, match="cannot read"):
        await _ask(bag, tmp_path, ModelConfig("bag"), text=[["sun"]])
