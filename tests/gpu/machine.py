"""The GPU that the tests run on, as its driver tells, and why there is none to run them on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

import pytest

_FIND = """
import torch
assert torch.cuda.is_available(), f"PyTorch {torch.__version__} finds no GPU"
print(torch.__version__, torch.version.cuda)
"""


@cache
def missing() -> str:
    """What the tests lack on this machine; empty where they can run."""
    if shutil.which("nvidia-smi") is None:
        return "needs a GPU: there is no nvidia-smi here, so no driver of NVIDIA's"
    try:
        smi("index")
    except subprocess.CalledProcessError as error:
        return f"needs a GPU: nvidia-smi says {error.stdout.strip() or error.returncode}"
    found = _torch()
    if found.returncode:
        said = found.stderr.strip().rpartition("\n")[2]
        return f"needs PyTorch with CUDA: {said}"
    return ""


@cache
def _torch() -> subprocess.CompletedProcess[str]:
    """PyTorch's version and CUDA's, from a process that ends: tests take no memory of the GPU."""
    command = [sys.executable, "-c", _FIND]
    return subprocess.run(command, capture_output=True, text=True, timeout=180)


def smi(*fields: str) -> list[str]:
    """What nvidia-smi tells of the first GPU, without units; raises `CalledProcessError`."""
    query = f"--query-gpu={','.join(fields)}"
    command = ["nvidia-smi", "--id=0", query, "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [value.strip() for value in done.stdout.strip().split(",")]


def used_mib() -> int:
    """MiB of the first GPU's memory that all processes together use."""
    return int(smi("memory.used")[0])


def described() -> dict[str, str]:
    """The machine, for the report."""
    name, driver, memory = smi("name", "driver_version", "memory.total")
    torch, cuda = _torch().stdout.split()
    return {
        "gpu": name,
        "memory": f"{memory} MiB",
        "driver": driver,
        "PyTorch": torch,
        "CUDA of PyTorch": cuda,
        "Python": sys.version.partition(" ")[0],
    }


def on_gpu() -> Sequence[pytest.MarkDecorator]:
    """The marks of each module of tests here."""
    return [
        pytest.mark.time_limit(400),
        pytest.mark.slow,
        pytest.mark.needs("gpu", missing()),
    ]
