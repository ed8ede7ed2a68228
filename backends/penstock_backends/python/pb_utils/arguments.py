"""Validation of arguments of `triton_python_backend_utils`: converts them or raises `TypeError`.

The rules are those of Triton's module in C, which accepts no more than this (contract PY-12).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat, SupportsInt, TypeVar

Text = str | bytes
"""Text as models may give it: numpy's scalars `str_` and `bytes_` are of these classes too."""

REQUIRED: Any = None
"""The default of a required argument that follows optional ones."""

UINT32 = range(1 << 32)
INT64 = range(-(1 << 63), 1 << 63)
UINT64 = range(1 << 64)

_T = TypeVar("_T")


def text(value: object, name: str) -> str:
    """The text as a plain `str`, which is what travels to the server; bytes are UTF-8.

    Raises `TypeError` for what is not text, and for text that cannot be encoded as UTF-8.
    """
    if type(value) is str and value.isascii():
        return value
    try:
        if isinstance(value, str):
            return value.encode().decode()  # also of a subclass, whose `str()` may be anything
        if isinstance(value, bytes | bytearray):
            return value.decode()
    except UnicodeError as error:
        raise TypeError(f"'{name}' is not UTF-8: {error}") from error
    raise _refusal(value, name, "text (str or bytes)")


def message(value: object, name: str) -> str:
    """A text for people: as `text`, but what is not UTF-8 is escaped instead of refused."""
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="backslashreplace")
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    raise _refusal(value, name, "text (str or bytes)")


def texts(value: object, name: str) -> tuple[str, ...]:
    """A list, tuple or array of texts; a bare string and a set are refused."""
    return tuple(text(item, name) for item in sequence(value, name, "texts"))


def sequence(value: object, name: str, items: str) -> Sequence[Any]:
    """A list or tuple, or anything else with an order that is not text; not an iterator."""
    if type(value) is list or type(value) is tuple:  # the common case, without the slower checks
        return value
    if not hasattr(type(value), "__getitem__") or isinstance(value, (str, bytes, Mapping)):
        raise _refusal(value, name, f"a list of {items}")
    return value  # type: ignore[return-value]


def integer(value: object, name: str, within: range) -> int:
    """An integer, of Python or numpy; a float is refused, whatever its value."""
    if type(value) is int:  # the common case, without the slower check
        number = value
    elif isinstance(value, float) or not isinstance(value, SupportsInt):
        raise _refusal(value, name, "an integer")
    else:
        number = int(value)
    if number not in within:
        raise TypeError(f"'{name}' is not within {within.start} to {within.stop - 1}: {number}")
    return number


def real(value: object, name: str) -> float:
    """A number, of Python or numpy."""
    if type(value) is not float and not isinstance(value, SupportsFloat):
        raise _refusal(value, name, "a number")
    return float(value)


def truth(value: object, name: str) -> bool:
    """A bool, or a number in its place; text and lists are refused."""
    if value is None or not hasattr(type(value), "__bool__"):
        raise _refusal(value, name, "a bool")
    return bool(value)


def instance(value: object, name: str, kind: type[_T]) -> _T:
    """An object of this class."""
    if not isinstance(value, kind):
        raise _refusal(value, name, f"of class {kind.__name__}")
    return value


def _refusal(value: object, name: str, wanted: str) -> TypeError:
    return TypeError(f"'{name}' is not {wanted}, but {type(value).__name__}")
