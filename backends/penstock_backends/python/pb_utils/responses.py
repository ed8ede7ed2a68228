"""Responses and errors of a model, preferred memory, and Triton's constants."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.errors import InferenceError, error_from_code
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.tensor import Tensor

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_MEMORY_GPU = 0
TRITONSERVER_MEMORY_CPU = 1

_CODES = (
    "UNKNOWN",
    "INTERNAL",
    "NOT_FOUND",
    "INVALID_ARG",
    "UNAVAILABLE",
    "UNSUPPORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
)


class TritonError:
    """An error as a response carries it (contract PY-19)."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG = 0, 1, 2, 3
    UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = 4, 5, 6, 7

    __slots__ = ("_code", "_message")

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        if code not in range(len(_CODES)):
            raise TritonModelException(f"unknown error code {code!r}")
        self._message = str(message)
        self._code = code

    @classmethod
    def from_name(cls, name: str, message: str) -> TritonError:
        """The error with the code of this name."""
        return cls(message, _CODES.index(name) if name in _CODES else cls.UNKNOWN)

    def message(self) -> str:
        return self._message

    def code(self) -> int:
        return self._code

    @property
    def code_name(self) -> str:
        """The name of the code, as the server uses it."""
        return _CODES[self._code]

    @property
    def core(self) -> InferenceError:
        """The error in the server's form."""
        return error_from_code(self.code_name, self._message)

    def __str__(self) -> str:
        return self._message


class PreferredMemory:
    """Preferred memory for the outputs of a request to another model (contract PY-17)."""

    __slots__ = ("device_id", "memory_type")

    def __init__(self, preferred_memory_type: int, preferred_device_id: int = 0) -> None:
        self.memory_type = preferred_memory_type
        self.device_id = preferred_device_id


class InferenceResponse:
    """One response of a model: tensors, or an error, and parameters (contract PY-18)."""

    __slots__ = ("_error", "_parameters", "_tensors")

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: object = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        for tensor in output_tensors:
            if tensor is None:
                raise TritonModelException(
                    "Output tensor for inference response should not be empty."
                )
            if not isinstance(tensor, Tensor):
                raise TypeError(f"expected a Tensor in output_tensors, got {type(tensor)}")
        self._tensors = list(output_tensors)
        self._error = error if error is None or isinstance(error, TritonError) else _as_error(error)
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


def _as_error(error: object) -> TritonError:
    return TritonError(str(error))


def parameters_json(parameters: Mapping[str, Any]) -> str:
    """The parameters as JSON in Triton's form: without blanks and without escapes of non-ASCII."""
    return json.dumps(dict(parameters), separators=(",", ":"), ensure_ascii=False)


def checked_parameters(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters of a request or response; raises unless all are of types that can be sent."""
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise TypeError(f"parameters must be a dict, got {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(
                f"Expect parameters keys to have type str, found type {type(key)}"
            )
        if not isinstance(value, bool | int | float | str):
            raise TritonModelException(
                "Expect parameters values to have type bool/int/float/str, found type"
                f" {type(value)}"
            )
    return dict(parameters)
