"""Request parameters of gRPC: those of the server itself, and those for the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.buffer import Buffer
from penstock.core.errors import InvalidRequestError, shortened
from penstock.core.request import ParameterValue, text_correlation_id
from penstock.header_forward import HeaderForward
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import RpcContext
from penstock.rpc.infer_layout import Span, fields_of

EMPTY_FINAL = "triton_enable_empty_final_response"
FINAL = "triton_final_response"
CLASSIFICATION = "classification"

_SMALL_LOAD = 64 << 10
"""Bytes of a load request that may hold anything."""
_MOST_LOAD_FIELDS = 8192
_LOAD_LEVELS = (0x1A, 0x12, 0)
"""The fields to descend into: parameters of the message, their values, and none of these."""

_CUSTOM_KINDS = ("bool_param", "int64_param", "string_param", "double_param")


def split_parameters(
    parameters: Mapping[str, pb.InferParameter],
) -> tuple[dict[str, Any], dict[str, ParameterValue]]:
    """Split parameters into fields of `InferenceRequest`, and those for the model."""
    fields: dict[str, Any] = {}
    custom: dict[str, ParameterValue] = {}
    for key, parameter in parameters.items():
        if read := _OWN.get(key):
            field, value = read(key, parameter)
            fields[field] = value
        elif key.startswith("triton_"):
            _check_reserved(key, parameter)
        else:
            custom[key] = _custom(key, parameter)
    return fields, custom


def wants_empty_final(parameters: Mapping[str, pb.InferParameter]) -> bool:
    """Whether the client wants an empty message for a final flag without data (GP-05)."""
    return EMPTY_FINAL in parameters and parameters[EMPTY_FINAL].bool_param


def class_count(parameter: pb.InferParameter) -> int:
    """The number of classes that an output's parameter requests (GP-10)."""
    if parameter.WhichOneof("parameter_choice") != "int64_param":
        raise _wrong_type(CLASSIFICATION, "int64_param")
    if parameter.int64_param <= 0:
        raise InvalidRequestError(f"invalid value for '{CLASSIFICATION}' parameter, expected >= 0")
    return parameter.int64_param


def parse_load(data: Buffer) -> pb.RepositoryModelLoadRequest:
    """Parse a load request, whose files may be large; other fields are few.

    Raises `InvalidRequestError` for more of these than one needs, and `DecodeError`.
    """
    if len(data) > _SMALL_LOAD:
        view = memoryview(data)
        spans, found = [(0, len(view))], 0
        for inner in _LOAD_LEVELS:
            deeper: list[Span] = []
            for span in spans:
                for tag, _, begin, end in fields_of(view, *span):
                    found += 1
                    if found > _MOST_LOAD_FIELDS:
                        raise InvalidRequestError(
                            f"load request has more than {_MOST_LOAD_FIELDS} fields"
                        )
                    if tag == inner:
                        deeper.append((begin, end))
            spans = deeper
    message: pb.RepositoryModelLoadRequest = pb.RepositoryModelLoadRequest.FromString(data)
    return message


def load_parameters(
    parameters: Mapping[str, pb.ModelRepositoryParameter],
) -> dict[str, str | bytes]:
    """Parameters of a load request: a configuration and files that override the repository's."""
    read: dict[str, str | bytes] = {}
    for key, parameter in parameters.items():
        if key != "config" and not key.startswith("file:"):
            raise InvalidRequestError(f"unrecognized load parameter '{key}'.")
        field = "string_param" if key == "config" else "bytes_param"
        if parameter.WhichOneof("parameter_choice") != field:
            raise InvalidRequestError(
                f"invalid value type for load parameter '{key}', expected {field}."
            )
        read[key] = getattr(parameter, field)
    return read


def unload_dependents(parameters: Mapping[str, pb.ModelRepositoryParameter]) -> bool:
    """Whether to unload the models that a model depends on too; other keys are ignored."""
    key = "unload_dependents"
    if key not in parameters:
        return False
    if parameters[key].WhichOneof("parameter_choice") != "bool_param":
        raise _wrong_type(key, "bool_param.")
    return parameters[key].bool_param


def _check_reserved(key: str, parameter: pb.InferParameter) -> None:
    if key != EMPTY_FINAL:
        raise InvalidRequestError(
            "parameter keys starting with 'triton_' are reserved for Triton usage. Only the"
            f" following keys starting with 'triton_' are allowed: {EMPTY_FINAL}"
        )
    _bool(key, parameter)


def _correlation_id(key: str, parameter: pb.InferParameter) -> tuple[str, int | str]:
    kind = parameter.WhichOneof("parameter_choice")
    if kind == "int64_param":
        return "correlation_id", parameter.int64_param % (1 << 64)  # they are unsigned
    if kind != "string_param":
        raise _wrong_type(key, "int64_param or string_param.")
    return "correlation_id", text_correlation_id(parameter.string_param)


def _flag(key: str, parameter: pb.InferParameter) -> tuple[str, bool]:
    return key, _bool(key, parameter)


def _bool(key: str, parameter: pb.InferParameter) -> bool:
    if parameter.WhichOneof("parameter_choice") != "bool_param":
        raise _wrong_type(key, "bool_param.")
    return parameter.bool_param


def _priority(key: str, parameter: pb.InferParameter) -> tuple[str, int]:
    kind = parameter.WhichOneof("parameter_choice")
    if kind == "uint64_param":
        return key, parameter.uint64_param
    if kind != "int64_param":
        raise _wrong_type(key, "int64_param or uint64_param.")
    if parameter.int64_param < 0:
        raise InvalidRequestError("invalid value for 'priority', expected value >= 0.")
    return key, parameter.int64_param


def _timeout(key: str, parameter: pb.InferParameter) -> tuple[str, int]:
    if parameter.WhichOneof("parameter_choice") != "int64_param":
        raise _wrong_type(key, "int64_param.")
    return key, parameter.int64_param


def _custom(key: str, parameter: pb.InferParameter) -> ParameterValue:
    kind = parameter.WhichOneof("parameter_choice")
    if kind not in _CUSTOM_KINDS:
        raise _wrong_type(key, "int64_param, bool_param, or string_param.")
    value: ParameterValue = getattr(parameter, kind)
    return value


def _wrong_type(key: str, expected: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"invalid value type for '{shortened(key)}' parameter, expected {expected}"
    )


_OWN: dict[str, Callable[[str, pb.InferParameter], tuple[str, Any]]] = {
    "sequence_id": _correlation_id,
    "sequence_start": _flag,
    "sequence_end": _flag,
    "priority": _priority,
    "timeout": _timeout,
}


def forwarded(forward: HeaderForward, context: RpcContext) -> Mapping[str, str]:
    """The text metadata that `forward` selects; raises `InvalidRequestError` for reserved names."""
    fields = context.metadata_fields
    return forward.select((name, value) for name, value in fields if isinstance(value, str))
