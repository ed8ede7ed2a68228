"""Parameters of PyTorch models, and how their tensors are found; all that needs no PyTorch."""

from __future__ import annotations

import logging
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.backend import (
    BackendNotInstalledError,
    ConfigError,
    DataType,
    Input,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    ModelLoadError,
    Output,
    Parameter,
    SequenceBatching,
    SequenceState,
)
from penstock.testing import running
from penstock_backends.pytorch import PyTorchBackend
from penstock_backends.pytorch.naming import places
from penstock_backends.pytorch.settings import TorchSettings


@pytest.mark.contract("AC-08")
async def test_configurations_are_not_completed(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    config = ModelConfig("m", backend="pytorch")
    assert await PyTorchBackend.complete_config(config, tmp_path, {}) is config
    assert caplog.messages == [
        "skipping model configuration auto-complete for 'm': not supported for pytorch backend"
    ]


def _with(name: str, text: str) -> ModelConfig:
    return ModelConfig("m", backend="pytorch", parameters={name: Parameter(text)})


@pytest.mark.contract("B-09", "B-12")
@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (
            "INFERENCE_MODE",
            "maybe",
            "parameter 'INFERENCE_MODE' must be true or false, not 'maybe'",
        ),
        ("INTRA_OP_THREAD_COUNT", "-1", "must be a whole number, not '-1'"),
        ("TORCH_COMPILE_OPTIONAL_PARAMETERS", "{", "is no JSON"),
        ("TORCH_COMPILE_OPTIONAL_PARAMETERS", '{"model": 1}', "without 'model'"),
    ],
)
def test_parameters_that_cannot_be_are_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        PyTorchBackend.check_config(_with(name, text))


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({}, False),
        ({"allow-unsafe-models": "true"}, True),
        ({"allow-pickle": "True"}, True),
        ({"allow-pickle": "false"}, False),
    ],
    ids=str,
)
def test_pickles_are_allowed_by_the_server_or_for_this_backend(
    settings: dict[str, str], allowed: bool
) -> None:
    config = ModelConfig("m", backend="pytorch")
    assert TorchSettings.from_config(config, settings).allows_pickle is allowed


@pytest.mark.contract("B-09")
def test_weights_on_a_gpu_are_not_shared_and_said_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        shared = _with("ENABLE_WEIGHT_SHARING", "true")
        PyTorchBackend.check_config(shared)
        assert not caplog.text  # instances on CPUs share them
        group = InstanceGroup(kind=InstanceKind.KIND_GPU)
        PyTorchBackend.check_config(replace(shared, instance_group=(group,)))
    assert "'ENABLE_WEIGHT_SHARING' has no effect on a GPU" in caplog.text


def _on_threads(*more: str) -> ModelConfig:
    parameters = {"penstock.host": Parameter("thread")} | {name: Parameter("1") for name in more}
    return ModelConfig("m", backend="pytorch", parameters=parameters)


@pytest.mark.parametrize("name", ["DISABLE_CUDNN", "ENABLE_JIT_PROFILING", "INTER_OP_THREAD_COUNT"])
def test_what_holds_for_a_process_is_refused_on_threads_of_the_server(name: str) -> None:
    PyTorchBackend.check_config(_on_threads("ENABLE_WEIGHT_SHARING", "INTRA_OP_THREAD_COUNT"))
    with pytest.raises(ConfigError, match=f"parameter '{name}' holds for a whole process"):
        PyTorchBackend.check_config(_on_threads(name))


def test_code_in_python_is_refused_on_threads_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("raise AssertionError")
    PyTorchBackend.check_files(ModelConfig("m", backend="pytorch"), tmp_path, {})
    with pytest.raises(ModelLoadError, match="would hold up the server"):
        PyTorchBackend.check_files(_on_threads(), tmp_path, {"allow-unsafe-models": "true"})


@pytest.mark.contract("B-08")
@pytest.mark.parametrize(
    ("names", "known", "found"),
    [
        (["b", "a"], [["a", "b"]], [1, 0]),
        (["ARGS[1]", "ARGS[0]"], [["x", "y"], ["ARGS[0]", "ARGS[1]"]], [1, 0]),
        (["X__1", "Y__0"], [["a", "b"]], [1, 0]),
        (["X__1__0"], [[]], [0]),  # behind the first `__` is no number, so by order
        (["X__2", "a"], [["a", "b"]], [0, 1]),
        (["p", "q"], [], [0, 1]),
    ],
)
def test_places_of_tensors(names: list[str], known: list[list[str]], found: list[int]) -> None:
    assert [*places("m", "input", names, *known).values()] == found


@pytest.mark.contract("B-08")
@pytest.mark.parametrize("name", ["OUT", "OUT__0"])
def test_states_need_tensors_with_an_index(name: str) -> None:
    state = SequenceState("STATE__1", "NEXT__1", DataType.FP32, dims=(1,))
    config = ModelConfig(
        "m",
        backend="pytorch",
        input=(Input("IN__0", DataType.FP32, dims=(1,)),),
        output=(Output(name, DataType.FP32, dims=(1,)),),
        sequence_batching=SequenceBatching(state=(state,)),
    )
    if name == "OUT__0":
        PyTorchBackend.check_config(config)
        return
    with pytest.raises(ConfigError, match="PyTorch model 'm' is using sequence batching with"):
        PyTorchBackend.check_config(config)


@pytest.mark.contract("B-08")
async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"unable to find '.*/model.pt' for model"):
        async with running(PyTorchBackend, ModelConfig("m", backend="pytorch"), tmp_path):
            pass


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b"hello world", "it is no file of PyTorch"),
        (b"\x89PNG\r\n\x1a\n", "it is no file of PyTorch"),
        (bytes(4096), "it is no file of PyTorch"),
        (b"PK\x03\x04" + bytes(500), "it is cut off: the directory at the end of its archive"),
    ],
    ids=["empty", "text", "image", "zeros", "cut off"],
)
def test_a_file_that_is_none_of_pytorch_is_told_so_without_it(
    tmp_path: Path, content: bytes, why: str
) -> None:
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(ModelLoadError, match=f"failed to load model 'm': .*model.pt' .*{why}"):
        PyTorchBackend.check_files(ModelConfig("m", backend="pytorch"), tmp_path, {})


@pytest.mark.parametrize("content", [pickle.dumps({}, 2), bytes(257) + b"ustar" + bytes(300)])
def test_files_of_its_early_versions_are_pickles(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(ModelLoadError, match="would run code while it is read"):
        PyTorchBackend.check_files(ModelConfig("m", backend="pytorch"), tmp_path, {})


async def test_without_pytorch_the_refusal_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "model.pt").touch()
    with pytest.raises(BackendNotInstalledError, match=r"pip install 'penstock\[torch\]', or name"):
        async with running(PyTorchBackend, ModelConfig("m", backend="pytorch"), tmp_path):
            pass
