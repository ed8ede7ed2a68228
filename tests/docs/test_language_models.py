"""The page of language models' tensors, `docs/language-models.md`, names them all."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from penstock.core.config import ModelConfig
from penstock_backends.openvino_genai.settings import _RULES
from penstock_backends.vllm import VllmBackend
from penstock_backends.vllm.inputs.request_options import NAMES

_PAGE = (Path(__file__).parents[2] / "docs" / "language-models.md").read_text("utf-8")
_NAMED = set(re.findall(r"`([\w-]+)`", _PAGE))


async def test_each_tensor_is_on_the_page(tmp_path: Path) -> None:
    config = await VllmBackend.complete_config(ModelConfig(), tmp_path, {})
    tensors: list[Any] = [*config.input, *config.output]
    names = {str(tensor.name).removeprefix("return_") for tensor in tensors}
    assert sorted(names - _NAMED) == []


async def test_each_output_is_there_or_can_be_asked_for(tmp_path: Path) -> None:
    from penstock_backends.language_model import WantedOutputs

    config = await VllmBackend.complete_config(ModelConfig(), tmp_path, {})
    wanted = {field.name for field in fields(WantedOutputs)}
    assert wanted <= {tensor.name for tensor in config.output}
    assert {f"return_{name}" for name in wanted} <= {tensor.name for tensor in config.input}


@pytest.mark.parametrize("name", [*_RULES, *NAMES])
def test_each_setting_and_option_is_on_the_page(name: str) -> None:
    assert name in _NAMED


@pytest.mark.contract("VL-24")
def test_what_the_server_costs_beside_vllm_alone_was_measured() -> None:
    """Tokens a second against its engine and against `vllm serve`, for one stream and for many."""
    table = _PAGE.partition("| streams | gRPC | chat | first token: gRPC |")[2]
    rows = re.findall(r"^\| (\d+) \| ([\d.]+), ([\d.]+) \| ([\d.]+), ([\d.]+) \|", table, re.M)
    assert [int(streams) for streams, *_ in rows] == [1, 8, 32]
    assert min(float(ratio) for _, *ratios in rows for ratio in ratios) >= 0.9
