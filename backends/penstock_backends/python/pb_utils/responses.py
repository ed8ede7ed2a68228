"""Responses and errors of a model, preferred memory, and Triton's constants."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from penstock.core.errors import InferenceError, error_from_code
from penstock_backends.python.pb_utils import arguments
from penstock_backends.python.pb_utils.arguments import (
    INT64,
    Text,
    instance,
    integer,
    sequence,
    text,
)
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.tensor import Tensor

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


class MemoryType(IntEnum):
    """Where tensors lie."""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1


TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU


class ErrorCode(IntEnum):
    """The codes of `TritonError`, whose attributes they are."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


class TritonError:
    """An error as a response carries it (contract PY-19)."""

    UNKNOWN = ErrorCode.UNKNOWN
    INTERNAL = ErrorCode.INTERNAL
    NOT_FOUND = ErrorCode.NOT_FOUND
    INVALID_ARG = ErrorCode.INVALID_ARG
    UNAVAILABLE = ErrorCode.UNAVAILABLE
    UNSUPPORTED = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = ErrorCode.ALREADY_EXISTS
    CANCELLED = ErrorCode.CANCELLED

    __slots__ = ("_code", "_message")

    def __init__(self, message: Text, code: ErrorCode = INTERNAL) -> None:
        self._message = arguments.message(message, "message")
        self._code = instance(code, "code", ErrorCode)

    @classmethod
    def from_name(cls, name: str, message: str) -> TritonError:
        """The error with the code of this name."""
        codes = ErrorCode.__members__
        return cls(message, codes.get(name, ErrorCode.UNKNOWN))

    def message(self) -> str:
        return self._message

    def code(self) -> ErrorCode:
        return self._code

    @property
    def code_name(self) -> str:
        """The name of the code, as the server uses it."""
        return self._code.name

    @property
    def core(self) -> InferenceError:
        """The error in the server's form."""
        return error_from_code(self.code_name, self._message)

    def __str__(self) -> str:
        return self._message


class PreferredMemory:
    """Preferred memory for the outputs of a request to another model (contract PY-17)."""

    __slots__ = ("device_id", "memory_type")

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: int = 0) -> None:
        self.memory_type = instance(preferred_memory_type, "preferred_memory_type", MemoryType)
        self.device_id = integer(preferred_device_id, "preferred_device_id", INT64)


class InferenceResponse:
    """One response of a model: tensors, or an error, and parameters (contract PY-18)."""

    __slots__ = ("_error", "_parameters", "_tensors")

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        for tensor in sequence(output_tensors, "output_tensors", "Tensor"):
            if tensor is None:
                raise TritonModelException(
                    "Output tensor for inference response should not be empty."
                )
            if not isinstance(tensor, Tensor):
                raise TypeError(f"expected a Tensor in output_tensors, got {type(tensor)}")
        self._tensors = list(output_tensors)
        self._error = None if error is None else instance(error, "error", TritonError)
        self._parameters = checked_parameters(parameters)

    def output_tensors(self) -> list[Tensor]:
        return self._tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error

    def parameters(self) -> str:
        """The parameters as JSON."""
        return parameters_json(self._parameters)

    @property
    def core_parameters(self) -> dict[str, Any]:
        """The parameters in the server's form."""
        return self._parameters


def parameters_json(parameters: Mapping[str, Any]) -> str:
    """The parameters as JSON in Triton's form: without blanks and without escapes of non-ASCII."""
    return json.dumps(dict(parameters), separators=(",", ":"), ensure_ascii=False)


def checked_parameters(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters of a request or response; raises unless all are of types that can be sent."""
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise TypeError(f"'parameters' is not a dict, but {type(parameters).__name__}")
    return {_key(key): _value(value) for key, value in parameters.items()}


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TritonModelException(
            f"Expect parameters keys to have type str, found type {type(key)}"
        )
    return text(key, "parameters")


def _value(value: object) -> bool | int | float | str:
    if isinstance(value, str):
        return text(value, "parameters")
    if not isinstance(value, bool | int | float):
        raise TritonModelException(
            f"Expect parameters values to have type bool/int/float/str, found type {type(value)}"
        )
    return float(value) if isinstance(value, float) else value
