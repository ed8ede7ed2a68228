"""Typed access to decoded JSON; errors name key and type with Triton's texts."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from penstock.core.errors import InferenceError, InternalError, InvalidRequestError, shortened
from penstock.core.request import ParameterValue
from penstock.gateway.json.errors import number_too_big

ABSENT: Any = object()
"""Stands for a missing member, as opposed to `null`."""


def member(holder: Any, key: str) -> Any:
    """A member of an object, or `ABSENT`; other values have no members."""
    return holder.get(key, ABSENT) if isinstance(holder, dict) else ABSENT


def required(holder: Any, key: str, prefix: str | None = None) -> Any:
    """A member that must exist."""
    value = member(holder, key)
    if value is ABSENT:
        prefix = unable(key) if prefix is None else prefix
        raise InternalError(f"{prefix}attempt to access non-existing object member '{key}'")
    return value


@lru_cache(256)
def unable(key: str) -> str:
    """The prefix of error texts about a member."""
    return f"Unable to parse '{key}': "


def as_string(value: Any, prefix: str = "") -> str:
    if isinstance(value, str):
        return value
    raise wrong_type("string", "string", prefix)


def as_bool(value: Any, prefix: str = "") -> bool:
    if isinstance(value, bool):
        return value
    raise wrong_type("boolean", "boolean", prefix)


def as_unsigned(value: Any, prefix: str = "") -> int:
    if type(value) is int and 0 <= value < 1 << 64:
        return value
    raise wrong_type("unsigned-integer", "unsigned-integer", prefix)


def as_list(value: Any, prefix: str = "") -> list[Any]:
    if isinstance(value, list):
        return value
    raise wrong_type("array", "array", prefix)


def as_object(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise wrong_type("object", "object", prefix)


def members_of(value: Any, prefix: str = "") -> dict[str, Any]:
    """All members of a value that must be an object."""
    if isinstance(value, dict):
        return value
    raise InternalError(f"{prefix}attempt to get members for non-object")


def as_parameter(key: str, value: Any) -> ParameterValue:
    """The value of a free parameter; integers beyond 64 bits become floating point."""
    if isinstance(value, bool | str | float):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else as_float(value)
    raise InvalidRequestError(
        f"parameter '{shortened(key)}' has invalid type. It should be either 'int', 'bool', or"
        " 'string'."
    )


def as_float(number: int) -> float:
    """An integer beyond 64 bits as a double."""
    try:
        return float(number)
    except OverflowError as error:
        raise number_too_big() from error


def wrong_type(found: str, expected: str, prefix: str = "") -> InferenceError:
    """The error for a value of another type than `expected`."""
    return InternalError(f"{prefix}attempt to access JSON non-{found} as {expected}")
