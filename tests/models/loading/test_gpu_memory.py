"""Limits on the memory of GPUs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.outcomes import raises_nothing
from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
from penstock.core.errors import ModelLoadError, UnavailableError
from penstock.models.loading.gpu_memory import check_gpu_memory, used_memory
from penstock.system.nvml import physical_name

pytestmark = pytest.mark.contract("M-13", "CL-46")

ON_GPUS = InstanceGroup(kind=InstanceKind.KIND_GPU, gpus=(0, 1))
ON_CPU = InstanceGroup(kind=InstanceKind.KIND_CPU)

_FAKE = """
#include <string.h>
struct memory { unsigned long long total, free, used; };
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = (void *)(unsigned long)(index + 1);
    return index < 2 ? 0 : 2;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    *handle = (void *)1;
    return strcmp(uuid, "GPU-abc") ? 6 : 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory) {
    memory->total = 8000;
    memory->used = 2000 * (unsigned long)handle;
    memory->free = memory->total - memory->used;
    return 0;
}
"""


def _config(*groups: InstanceGroup) -> ModelConfig:
    return ModelConfig(name="m", instance_group=groups)


def test_a_gpu_above_its_limit_takes_no_more_models() -> None:
    used = {0: 0.5, 1: 0.91}.__getitem__
    with pytest.raises(UnavailableError) as refused:
        check_gpu_memory(_config(ON_CPU, ON_GPUS), {0: 0.9, 1: 0.9}, used)
    assert refused.value.message == (
        "can not create model 'm': memory limit set for GPU 1 has exceeded, "
        "model loading is rejected."
    )


@pytest.mark.parametrize(
    ("group", "limits"), [(ON_GPUS, {0: 1.0, 1: 0.95}), (ON_GPUS, {}), (ON_CPU, {0: 0.1})]
)
def test_others_are_loaded(group: InstanceGroup, limits: dict[int, float]) -> None:
    with raises_nothing():
        check_gpu_memory(_config(group), limits, lambda _: 0.95)


@pytest.mark.parametrize(
    ("device", "visible", "name"),
    [(1, None, "1"), (1, "3, 5", "5"), (0, "GPU-abc", "GPU-abc")],
)
def test_the_driver_is_asked_for_the_gpu_that_cuda_means(
    device: int, visible: str | None, name: str
) -> None:
    assert physical_name(device, visible) == name


def test_without_a_driver_nothing_is_known() -> None:
    with pytest.raises(ModelLoadError, match="cannot read the memory use of GPU 0"):
        used_memory(0, "libno-such-driver.so")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that answers as NVIDIA's does, for two GPUs."""
    folder: Path = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(_FAKE)
    library = folder / "libnvml.so"
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(folder / "nvml.c")]
    subprocess.run(command, check=True)
    return str(library)


needs_compiler = pytest.mark.needs(
    "a C compiler", "" if shutil.which("cc") else "there is no C compiler"
)


@needs_compiler
def test_the_driver_reports_memory_use(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [used_memory(device, driver) for device in (0, 1)] == [0.25, 0.5]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,GPU-abc")
    assert [used_memory(device, driver) for device in (0, 1)] == [0.5, 0.25]


@needs_compiler
def test_an_error_of_the_driver_is_reported(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(ModelLoadError, match="GPU 7: NVML error 2"):
        used_memory(7, driver)
