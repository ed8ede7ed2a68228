"""The modules that models import."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from penstock_backends.python.pb_utils.modules import MODULES, install_modules

_OUTER = """
    InferenceRequest InferenceResponse Logger MetricFamily ModelConfig PreferredMemory Tensor
    TritonError TritonModelException TRITONSERVER_MEMORY_CPU TRITONSERVER_MEMORY_GPU
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
    TRITONSERVER_REQUEST_RELEASE_ALL TRITONSERVER_REQUEST_RELEASE_RESCHEDULE
    TRITONSERVER_RESPONSE_COMPLETE_FINAL TRITON_STRING_TO_NUMPY deserialize_bytes_tensor
    get_input_config_by_name get_input_tensor_by_name get_model_dir get_output_config_by_name
    get_output_tensor_by_name is_model_ready json load_model np numpy_to_triton_type
    serialize_byte_tensor struct triton_string_to_numpy triton_to_numpy_type unload_model
    using_decoupled_model_transaction_policy
"""
"""What a model of Triton 2.51 gets by `from triton_python_backend_utils import *`."""

_OF_ANY_FILE = """
    __builtins__ __cached__ __doc__ __file__ __loader__ __name__ __package__ __spec__
"""
_INNER = """
    COUNTER GAUGE HISTOGRAM InferenceRequest InferenceResponse InferenceResponseSender
    InferenceTrace Logger MemoryType Metric MetricFamily MetricKind PreferredMemory
    ResponseIterator TRITONSERVER_MEMORY_CPU TRITONSERVER_MEMORY_GPU Tensor TritonError
    TritonModelException is_model_ready load_model unload_model
"""
"""What its module in C has, without the names of its own wiring."""


@pytest.fixture
def pb_utils() -> Iterator[ModuleType]:
    """The module, imported as a model does."""
    install_modules()
    yield importlib.import_module("triton_python_backend_utils")
    for name in MODULES:
        del sys.modules[name]


@pytest.mark.contract("PY-30")
def test_names_are_those_of_triton_and_no_others(pb_utils: ModuleType) -> None:
    assert dir(pb_utils) == sorted([*_OUTER.split(), *_OF_ANY_FILE.split()])


@pytest.mark.contract("PY-30")
@pytest.mark.usefixtures("pb_utils")
def test_a_star_brings_the_same_names() -> None:
    names: dict[str, Any] = {}
    exec("from triton_python_backend_utils import *", names)
    assert names.keys() - {"__builtins__"} == set(_OUTER.split())


def test_classes_are_found_in_the_inner_module_as_well(pb_utils: ModuleType) -> None:
    inner = importlib.import_module("c_python_backend_utils")
    assert inner.Tensor is pb_utils.Tensor
    assert [name for name in dir(inner) if not name.startswith("__")] == sorted(_INNER.split())


def test_module_is_one_of_a_file(pb_utils: ModuleType) -> None:
    spec = importlib.util.find_spec("triton_python_backend_utils")
    assert spec is not None
    assert spec.origin == pb_utils.__file__


def test_module_is_for_model_processes_only() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("triton_python_backend_utils")
