"""The module `triton_python_backend_utils` as models find it (contract PY-30, PY-31)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.core.tensor import Array, DataType, decode_elements, encode_elements
from penstock_backends.python.pb_utils import runtime
from penstock_backends.python.pb_utils.arguments import Text, text
from penstock_backends.python.pb_utils.config import ModelConfig
from penstock_backends.python.pb_utils.control import is_model_ready, load_model, unload_model
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.logger import Logger
from penstock_backends.python.pb_utils.metrics import MetricFamily
from penstock_backends.python.pb_utils.request import InferenceRequest
from penstock_backends.python.pb_utils.responses import (
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_GPU,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    InferenceResponse,
    PreferredMemory,
    TritonError,
)
from penstock_backends.python.pb_utils.tensor import NUMBERS, Tensor

__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "Logger",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]

# -- tensors of a request and of a configuration -------------------------------------------------


def get_input_tensor_by_name(inference_request: InferenceRequest, name: Text) -> Tensor | None:
    """The input with this name, `None` when the request has none."""
    return inference_request.tensors.get(_sought(name))


def get_output_tensor_by_name(inference_response: InferenceResponse, name: Text) -> Tensor | None:
    """The output with this name, `None` when the response has none."""
    wanted = _sought(name)
    for tensor in inference_response.output_tensors():
        if tensor.name() == wanted:
            return tensor
    return None


def get_input_config_by_name(model_config: Mapping[str, Any], name: Text) -> dict[str, Any] | None:
    """The declaration of an input in a configuration as a dict; `None` without one."""
    return _named(model_config.get("input", ()), name)


def get_output_config_by_name(model_config: Mapping[str, Any], name: Text) -> dict[str, Any] | None:
    """The declaration of an output in a configuration as a dict; `None` without one."""
    return _named(model_config.get("output", ()), name)


def _named(tensors: Any, name: Text) -> dict[str, Any] | None:
    wanted = _sought(name)
    return next((tensor for tensor in tensors if tensor["name"] == wanted), None)


def _sought(name: Text | None) -> str:
    """The name to look for; no tensor has the empty one, which `None` stands for as with Triton."""
    return "" if name is None else text(name, "name")


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    """Whether the configuration, as a dict, makes the model decoupled."""
    policy = model_config.get("model_transaction_policy") or {}
    return bool(policy.get("decoupled", False))


def get_model_dir() -> str:
    """The directory of the model's version, where `model.py` is."""
    return runtime.current().model_directory


# -- datatypes -----------------------------------------------------------------------------------

_WITH_NUMPY = [t for t in NUMBERS if t is not DataType.BF16]

TRITON_STRING_TO_NUMPY: dict[str, type[Any]] = {
    datatype.config_name: datatype.numpy.type for datatype in _WITH_NUMPY
} | {"TYPE_BOOL": bool}
"""numpy's types by the names that configurations use."""

_TO_NUMPY = {NUMBERS[datatype]: datatype.numpy.type for datatype in _WITH_NUMPY}
_FROM_NUMPY = {numpy: number for number, numpy in _TO_NUMPY.items()} | {
    np.bytes_: NUMBERS[DataType.BYTES]
}


def triton_to_numpy_type(data_type: int) -> type[Any] | None:
    """The numpy type of `Tensor.triton_dtype()`; `None` for BF16, which numpy has not."""
    return _TO_NUMPY.get(data_type)


def numpy_to_triton_type(data_type: Any) -> int | None:
    """The number of a numpy type or dtype, `None` when no tensor holds it."""
    return _FROM_NUMPY.get(getattr(data_type, "type", data_type))


def triton_string_to_numpy(triton_type_string: str) -> type[Any]:
    """The numpy type of a name such as `TYPE_FP32`."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


# -- BYTES tensors -------------------------------------------------------------------------------


def serialize_byte_tensor(input_tensor: Array) -> bytes | tuple[()] | None:
    """The elements one after the other, each behind its length; `None` if it has no strings."""
    if not input_tensor.size:
        return ()
    if input_tensor.dtype.kind not in "OS":
        return None
    return encode_elements(
        value if isinstance(value, bytes) else str(value).encode() for value in input_tensor.flat
    )


def deserialize_bytes_tensor(encoded_tensor: bytes) -> Array:
    """The elements that `serialize_byte_tensor` has encoded, as an array of one dimension."""
    elements = decode_elements(encoded_tensor)
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    return array
