"""One network in each format of PyTorch's, on a GPU, against what it answers on the CPU."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gpu.machine import on_gpu
from gpu.serving import GpuServer, write_models

Record = Callable[[str, object], None]

pytestmark = on_gpu()
_NO_COMPILER = "" if shutil.which(os.environ.get("CXX", "g++")) else "needs a C++ compiler: g++"


def compare(server: GpuServer, model: str, record: Record) -> None:
    """Load the model and compare its answers with the CPU's; what that took is reported."""
    x, y = server.expected()
    begin = time.perf_counter()
    server.load(model)
    loaded = time.perf_counter()
    answer = server.answer(model, x)
    record("load", f"{loaded - begin:.1f} s")
    record("first answer", f"{time.perf_counter() - loaded:.2f} s")
    record("largest difference from the CPU", f"{np.abs(answer - y).max():.1e}")
    np.testing.assert_allclose(answer, y, atol=1e-4)


@pytest.mark.parametrize("model", ["script", "exported", "in_python"])
def test_format_answers_as_on_the_cpu(
    server: GpuServer, model: str, record_property: Record
) -> None:
    compare(server, model, record_property)


@pytest.fixture(scope="module")
def with_compiled(server: GpuServer, repository: Path) -> GpuServer:
    """The server, whose repository has what is compiled for this GPU."""
    write_models(repository, "--compile")
    return server


@pytest.mark.needs("compiler", _NO_COMPILER)
@pytest.mark.parametrize("model", ["compiled", "compiled_at_load"])
def test_compiled_model_answers_as_on_the_cpu(
    with_compiled: GpuServer, model: str, record_property: Record
) -> None:
    dies = with_compiled.repository / model / "1" / "dies"
    if dies.exists():
        pytest.skip(f"PyTorch alone dies of {dies.read_text()} when it loads its package")
    compare(with_compiled, model, record_property)
