"""The stand-ins for TensorRT and CUDA, importable, and instances over them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backends.conftest import OpenInstance
from penstock_backends.tensorrt import TensorRtBackend, plan

PACKAGE = Path(__file__).with_name("package")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in of the GPU, new for each test; in the end all of it was given back."""
    _forget()
    monkeypatch.syspath_prepend(str(PACKAGE))
    from cuda.bindings import runtime

    yield runtime
    left = runtime.gpu.left()
    _forget()
    assert not left, "not given back"


def _forget() -> None:
    """Have neither the stand-ins nor what they stand for imported."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("cuda", "tensorrt")]:
        del sys.modules[name]
    plan.runtime_log.cache_clear()
    plan._load_plugins.cache_clear()


@pytest.fixture
def open_backend(gpu: Any, open_instance: OpenInstance) -> OpenInstance:
    return partial(open_instance, TensorRtBackend, kind="KIND_GPU")
