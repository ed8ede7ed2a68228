"""Instances of one engine, ONNX Runtime, without a server: what holds of all tensor models."""

from __future__ import annotations

from functools import partial

import pytest

from backends.conftest import OpenInstance
from penstock_backends.onnxruntime import OnnxRuntimeBackend


@pytest.fixture
def open_backend(open_instance: OpenInstance) -> OpenInstance:
    return partial(open_instance, OnnxRuntimeBackend)
