"""Readings of GPUs by the package `nvidia-ml-py`, on a driver of our own and on a fake."""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from fakes.nvml import VALUES, FakeNvml
from penstock.system.nvml import NotReportedError, Nvml, NvmlError, physical_name

_DRIVER = """
#include <stdio.h>
#include <string.h>
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 2 ? "Invalid Argument" : "Not Supported"; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = (void *)(unsigned long)(index + 1);
    return index < 2 ? 0 : 2;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    *handle = (void *)1;
    return strcmp(uuid, "GPU-abc") ? 6 : 0;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
    return snprintf(text, length, "GPU-%lu", (unsigned long)handle) < 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory) {
    memory[0] = 8000; memory[1] = 6000; memory[2] = 2000;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) { rates[0] = 40; return 0; }
int nvmlDeviceGetPowerUsage(void *handle, unsigned *value) { *value = 70500; return 0; }
int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *value) { *value = 350000; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *value) { return 3; }
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    *major = 8; *minor = 9;
    return 0;
}
"""

_READ = """
import json
from penstock.system.nvml import NotReportedError, Nvml

nvml = Nvml()
gpu = nvml.gpu(0)
try:
    energy = gpu.energy()
except NotReportedError as error:
    energy = str(error)
print(json.dumps([gpu.uuid(), gpu.memory(), gpu.utilization(), gpu.power_usage(),
                  gpu.power_limit(), gpu.compute_capability(), energy, nvml.gpu(1).uuid()]))
nvml.close()
"""


@pytest.mark.needs("a C compiler", "" if shutil.which("cc") else "there is no C compiler")
@pytest.mark.contract("ME-21", "ME-22", "ME-23", "ME-24")
def test_the_package_reads_the_driver(tmp_path: Path) -> None:
    """The real package, on a library that answers as NVIDIA's does."""
    (tmp_path / "nvml.c").write_text(_DRIVER)
    library = tmp_path / "libnvidia-ml.so.1"
    build = ["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "nvml.c")]
    subprocess.run(build, check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    environment["CUDA_VISIBLE_DEVICES"] = "GPU-abc,1"
    command = [sys.executable, "-c", _READ]
    output = subprocess.run(command, env=environment, check=True, capture_output=True).stdout
    assert json.loads(output) == [
        *("GPU-1", [2000, 8000], 0.4, 70.5, 350.0, 8.9),
        *("Not Supported", "GPU-2"),
    ]


@pytest.mark.parametrize("name", VALUES)
def test_the_package_takes_a_handle_only(name: str) -> None:
    required = [
        parameter.name
        for parameter in inspect.signature(getattr(pynvml, name)).parameters.values()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    assert len(required) == 1


def test_the_package_has_what_is_used_of_it() -> None:
    assert dict(pynvml.c_nvmlMemory_t._fields_)["used"] is ctypes.c_ulonglong
    assert dict(pynvml.c_nvmlUtilization_t._fields_)["gpu"] is ctypes.c_uint
    assert pynvml.NVMLError(3).value == pynvml.NVML_ERROR_NOT_SUPPORTED == 3
    assert pynvml.NVMLError(13).value == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND == 13
    assert issubclass(pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError)


def test_units_are_watts_joules_bytes_and_fractions() -> None:
    gpu = Nvml(FakeNvml()).gpu(0)
    assert (gpu.power_usage(), gpu.power_limit(), gpu.energy()) == (70.5, 350.0, 3.0)
    assert (gpu.memory(), gpu.utilization(), gpu.compute_capability()) == ((2000, 8000), 0.4, 8.9)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (pynvml.NVML_ERROR_NOT_SUPPORTED, NotReportedError),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, NotReportedError),
        (pynvml.NVML_ERROR_GPU_IS_LOST, NvmlError),
    ],
)
def test_what_a_gpu_never_tells_is_apart_from_a_failure(code: int, kind: type) -> None:
    gpu = Nvml(FakeNvml(nvmlDeviceGetPowerUsage=code)).gpu(0)
    with pytest.raises(NvmlError) as failed:
        gpu.power_usage()
    assert type(failed.value) is kind


def test_a_missing_package_is_an_error_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlError, match="nvidia-ml-py is not installed"):
        Nvml()


@pytest.mark.parametrize(
    ("device", "visible", "name"),
    [(1, None, "1"), (1, "3, 5", "5"), (0, "GPU-abc", "GPU-abc")],
)
def test_the_driver_is_asked_for_the_gpu_that_cuda_means(
    device: int, visible: str | None, name: str
) -> None:
    assert physical_name(device, visible) == name
