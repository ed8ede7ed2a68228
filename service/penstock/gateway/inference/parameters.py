"""Decoder of the parameters of an inference request in JSON (contract HI-15)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.errors import InvalidRequestError
from penstock.core.request import ParameterValue, text_correlation_id
from penstock.core.request_limits import check_parameters
from penstock.gateway.json.fields import (
    ABSENT,
    as_bool,
    as_parameter,
    as_string,
    as_unsigned,
    member,
    members_of,
    unable,
)


@dataclass(frozen=True, slots=True)
class RequestParameters:
    """Parsed parameters: fields of `InferenceRequest`, the model's own, the output encoding."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    custom: Mapping[str, ParameterValue] = field(default_factory=dict)
    binary_output: bool = False


def read_parameters(request: Any) -> RequestParameters:
    """Parse the parameters of a request's JSON."""
    given = member(request, "parameters")
    if given is ABSENT:
        return RequestParameters()
    fields: dict[str, Any] = {}
    custom: dict[str, ParameterValue] = {}
    members = members_of(given, "failed to get request params.: ")
    check_parameters(members)
    for key, value in members.items():
        if read := _OWN.get(key):
            name, cast = read
            fields[name] = cast(value, unable(key))
        elif key.startswith("triton_"):
            raise InvalidRequestError(
                "parameter keys starting with 'triton_' are reserved for Triton usage"
                " and should not be specified."
            )
        else:
            custom[key] = as_parameter(key, value)
    binary = fields.pop("binary_output", False)
    return RequestParameters(fields, custom, binary)


def _correlation_id(value: Any, prefix: str) -> int | str:
    if type(value) is int and 0 <= value < 1 << 64:
        return value
    return text_correlation_id(as_string(value, prefix))


_OWN: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "sequence_id": ("correlation_id", _correlation_id),
    "sequence_start": ("sequence_start", as_bool),
    "sequence_end": ("sequence_end", as_bool),
    "priority": ("priority", as_unsigned),
    "timeout": ("timeout", as_unsigned),
    "binary_data_output": ("binary_output", as_bool),
}
