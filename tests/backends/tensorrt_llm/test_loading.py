"""Loads: what fails them, and which calls they make."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.tensorrt_llm.asking import ask, llm, on, opened, sampling
from backends.tensorrt_llm.conftest import WriteModel
from penstock.core.config import ModelConfig
from penstock.core.errors import (
    ModelLoadError,
)
from penstock.core.tensor import DataType, Tensor
from penstock.testing import RunningInstance, running
from penstock_backends.tensorrt_llm import TensorRtLlmTokensBackend

pytestmark = [pytest.mark.usefixtures("stand_in"), pytest.mark.usefixtures("release")]


async def test_an_engine_that_does_not_start_fails_the_load(version: WriteModel) -> None:
    with pytest.raises(ModelLoadError, match=r"cannot start with '.*model\.yaml': CUDA out of"):
        async with opened(version("model: broken")):
            raise AssertionError("it was loaded")


async def test_a_load_generates_one_token(version: WriteModel) -> None:
    async with opened(version()) as instance:
        (warm,) = llm(instance).requests
        assert [len(one.token_ids) for one in warm.outputs] == [1]
        assert warm.finished


@pytest.mark.parametrize(
    ("skip", "end"), [("false", (None, None, True)), ("true", (-1, 0, False))], ids=["text", "ids"]
)
async def test_the_token_of_a_load_ends_without_a_tokenizer_too(
    version: WriteModel, skip: str, end: tuple[int | None, int | None, bool]
) -> None:
    """Only a tokenizer knows the end token, so that without one it has to be given: none."""
    config = ModelConfig(name="tensorrt_llm")
    folder = version(f"model: tiny\nskip_tokenizer_init: {skip}")
    async with running(TensorRtLlmTokensBackend, config, folder) as instance:
        used = llm(instance).sampling
        assert (used.end_id, used.pad_id, used.detokenize) == end


async def test_a_model_that_cannot_generate_is_not_served(
    version: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = importlib.import_module("tensorrt_llm.model")

    def fail(self: object, **given: object) -> None:
        raise OSError("a kernel failed")

    monkeypatch.setattr(package.LLM, "generate_async", fail)
    with pytest.raises(ModelLoadError, match=r"started but cannot generate: .*a kernel failed"):
        async with opened(version()):
            raise AssertionError("it was loaded")


async def test_an_unknown_argument_fails_the_load_by_name(version: WriteModel) -> None:
    with pytest.raises(ModelLoadError, match="max_seq_length"):
        async with opened(version("model: tiny\nmax_seq_length: 5")):
            raise AssertionError("it was loaded")


async def test_engine_folders_run_where_the_release_still_does(
    version: WriteModel, release: str
) -> None:
    folder = version("model: engine\nkv_cache_config: {}")
    (folder / "engine").mkdir()
    (folder / "engine" / "rank0.engine").touch()
    if release == "1.2":
        async with opened(folder) as instance:
            assert llm(instance).arguments["model"] == str(folder / "engine")
    else:
        with pytest.raises(ModelLoadError) as refused:
            async with opened(folder):
                raise AssertionError("it was loaded")
        assert refused.value.message == (
            "this TensorRT-LLM no longer runs TensorRT engines; give 'model' in model.yaml"
        )


async def test_every_call_binds_to_the_installed_package(
    instance: RunningInstance, tmp_path: Path
) -> None:
    """The stand-in binds each to the facts; the package itself is asked too, where there is one."""
    calls = importlib.import_module("tensorrt_llm.facts").CALLS
    adapter: dict[str, Any] = {
        "lora_id": np.array([3], np.uint64),
        "lora_name": "a",
        "lora_path": str(tmp_path),
    }
    await ask(instance, **adapter, **on("return_cumulative_logprob"), **sampling(max_tokens=1))
    methods = {(owner, method) for owner, method, _ in calls}
    assert {
        ("LLM", "__init__"),
        ("LLM", "generate_async"),
        ("LLM", "get_stats_async"),
        ("SamplingParams", "__init__"),
    } <= methods
    if reason := bind_to_installed(calls):
        pytest.skip(f"bound to the committed facts alone: {reason}")


BIND = """
import importlib, inspect, json, sys
modules = [importlib.import_module(n) for n in ("tensorrt_llm", "tensorrt_llm.llmapi")]
for owner, method, names in json.load(sys.stdin):
    cls = next(getattr(m, owner) for m in modules if hasattr(m, owner))
    inspect.signature(getattr(cls, method)).bind(None, **dict.fromkeys(names))
"""


def bind_to_installed(calls: list[Any]) -> str:
    """Bind the calls to the package itself, in a process of its own; why not, if it is missing."""
    try:
        distribution("tensorrt_llm")
    except PackageNotFoundError:
        return "TensorRT-LLM is not installed"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command, given = [sys.executable, "-c", BIND], json.dumps(calls)
    subprocess.run(command, input=given, text=True, check=True, env=environment, timeout=300)
    return ""


def test_a_declared_text_stays_text() -> None:
    """A configuration of upstream's may say that a number comes as text."""
    from penstock.core.config import Output
    from penstock_backends.tensorrt_llm.answer import OutputEncoder

    declared = Output(name="cumulative_logprob", data_type=DataType.BYTES, dims=(-1,))
    encoder = OutputEncoder(ModelConfig(name="m", output=(declared,)))
    tensor: Tensor = encoder.tensor("cumulative_logprob", [-1.5, None])
    assert tensor.elements() == [b"-1.5", b"None"]
