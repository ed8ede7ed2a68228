"""The GPUs that an instance sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.core.config import ModelConfig, Parameter
from penstock.core.errors import ModelLoadError
from penstock_backends.vllm.arguments.devices import pin_devices
from penstock_backends.vllm.arguments.engine_args import EngineArguments

ALL = ModelConfig()
VISIBLE = {"CUDA_VISIBLE_DEVICES": "4,7"}


def arguments(**values: Any) -> EngineArguments:
    return EngineArguments({"model": "some/model", **values}, Path("model.json"))


def naming(gpus: str) -> ModelConfig:
    return ModelConfig(parameters={"GPU_DEVICE_IDS": Parameter(gpus)})


@pytest.mark.contract("VL-17", "VL-18")
@pytest.mark.parametrize(
    ("kind", "visible", "pinned"),
    [
        ("KIND_GPU", {}, {"CUDA_VISIBLE_DEVICES": "1"}),
        ("KIND_GPU", VISIBLE, {"CUDA_VISIBLE_DEVICES": "7"}),
        ("KIND_MODEL", {}, {}),
        ("KIND_CPU", VISIBLE, VISIBLE),
    ],
)
def test_a_gpu_instance_sees_its_device_only(
    kind: str, visible: dict[str, str], pinned: dict[str, str]
) -> None:
    seen = dict(visible)
    pin_devices(arguments(), ALL, kind, 1, seen)
    assert seen == pinned


def test_a_device_that_is_hidden_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="no GPU 3"):
        pin_devices(arguments(), ALL, "KIND_GPU", 3, {"CUDA_VISIBLE_DEVICES": "0"})


@pytest.mark.contract("VL-17")
@pytest.mark.parametrize(
    "key", ["tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"]
)
def test_a_gpu_instance_cannot_spread(key: str) -> None:
    spread = arguments(**{key: 2})
    with pytest.raises(ModelLoadError, match="KIND_GPU is currently for single-GPU models"):
        pin_devices(spread, ALL, "KIND_GPU", 0, {})
    pin_devices(spread, ALL, "KIND_MODEL", 0, {})


@pytest.mark.contract("VL-18", "SD-05")
@pytest.mark.parametrize(
    ("gpus", "visible", "seen"),
    [
        ("2", {}, "2"),
        (" 1, 0 ", VISIBLE, "7,4"),
        ("", VISIBLE, "4,7"),
        ("1,0", {"CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b"}, "GPU-b,GPU-a"),
    ],
)
def test_the_parameter_names_the_gpus_of_a_model(
    gpus: str, visible: dict[str, str], seen: str
) -> None:
    environment = dict(visible)
    pin_devices(arguments(), naming(gpus), "KIND_MODEL", 0, environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": seen}


@pytest.mark.contract("SD-05")
@pytest.mark.parametrize(
    ("gpus", "values", "why"),
    [
        ("a", {}, "must be numbers of GPUs, as in '0,1', not 'a'"),
        ("-1", {}, "must be numbers of GPUs"),
        ("0,", {}, "must be numbers of GPUs"),
        ("1,1", {}, "names a GPU twice: '1,1'"),
        ("0", {"tensor_parallel_size": 2}, "names 1 GPUs, but tensor_parallel_size times"),
        ("0,1", {"tensor_parallel_size": 2, "data_parallel_size": 2}, "data_parallel_size is 4"),
    ],
)
def test_gpus_that_the_engine_cannot_use_are_refused(
    gpus: str, values: dict[str, Any], why: str
) -> None:
    with pytest.raises(ModelLoadError, match=why):
        pin_devices(arguments(**values), naming(gpus), "KIND_MODEL", 0, {})


def test_replicas_on_other_machines_need_no_gpus_here() -> None:
    replicas = {"data_parallel_size": 4, "data_parallel_size_local": 2}
    environment: dict[str, str] = {}
    pin_devices(arguments(**replicas), naming("0,1"), "KIND_MODEL", 0, environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": "0,1"}


def test_a_named_gpu_that_is_hidden_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="no GPU 2: CUDA_VISIBLE_DEVICES names 2"):
        pin_devices(arguments(), naming("0,2"), "KIND_MODEL", 0, dict(VISIBLE))


def test_a_gpu_instance_is_not_named_twice() -> None:
    with pytest.raises(ModelLoadError, match="'GPU_DEVICE_IDS' is for instances of KIND_MODEL"):
        pin_devices(arguments(), naming("0"), "KIND_GPU", 0, {})
