"""The modules that models import: the one in Python, and rarely, for annotations, the one in C."""

from __future__ import annotations

import builtins
import json
import struct
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

import numpy as np

from penstock.metrics.exposition import MetricKind
from penstock_backends.python.pb_utils import api
from penstock_backends.python.pb_utils.metrics import Metric
from penstock_backends.python.pb_utils.request import InferenceTrace
from penstock_backends.python.pb_utils.response_iterators import ResponseIterator
from penstock_backends.python.pb_utils.responses import MemoryType
from penstock_backends.python.pb_utils.sender import InferenceResponseSender

_OUTER = {name: getattr(api, name) for name in api.__all__}
_IMPORTED = {"json": json, "np": np, "struct": struct}
"""Modules that Triton's file imports at its top, which models use as if they were theirs."""

_TAKEN_OVER = (
    "InferenceRequest",
    "InferenceResponse",
    "Logger",
    "MetricFamily",
    "PreferredMemory",
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "is_model_ready",
    "load_model",
    "unload_model",
)
"""Names that both modules have."""

_INNER = {
    **{name: _OUTER[name] for name in _TAKEN_OVER},
    **{kind.name: kind for kind in (MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM)},
    "InferenceResponseSender": InferenceResponseSender,
    "InferenceTrace": InferenceTrace,
    "MemoryType": MemoryType,
    "Metric": Metric,
    "MetricKind": MetricKind,
    "ResponseIterator": ResponseIterator,
}

MODULES = ("triton_python_backend_utils", "c_python_backend_utils")


def install_modules() -> None:
    """Let models import them, with Triton's names and no others; for model processes only."""
    spec = ModuleSpec(MODULES[0], None, origin=api.__file__)
    spec.has_location = True
    _install(spec, {**_OUTER, **_IMPORTED, "__builtins__": vars(builtins)})
    _install(ModuleSpec(MODULES[1], None), _INNER)


def _install(spec: ModuleSpec, names: Mapping[str, Any]) -> None:
    module: ModuleType = module_from_spec(spec)
    vars(module).update(names)
    sys.modules[spec.name] = module
