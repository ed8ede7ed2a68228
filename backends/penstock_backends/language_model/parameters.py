"""Parser of sampling parameters: field by field, with errors that name the parameter."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any, NoReturn

from penstock.backend import InvalidRequestError, suggestion
from penstock_backends.language_model.stop_strings import stops_complaint

_RESERVED = ("triton_", "penstock_")
"""Request parameters with these prefixes are not sampling parameters (GP-07)."""

_MOST_IDS = 1024

_LONGEST = 1 << 20
"""Characters of the JSON text: it is decoded where the engine's steps are made."""

_SIMILARITY = 0.8
"""Of a name that is suggested: a slip of the pen, not a parameter of another kind."""


def read_parameters(source: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Parameters from a JSON text or from request parameters; `null` means the default."""
    given = _decode(source) if isinstance(source, str) else source
    return {
        name: value
        for name, value in given.items()
        if value is not None and not name.startswith(_RESERVED)
    }


def _decode(text: str) -> Mapping[str, Any]:
    if len(text) > _LONGEST:
        raise InvalidRequestError(
            f"input 'sampling_parameters' has {len(text)} characters, more than {_LONGEST}"
        )
    try:
        given = _JSON.decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"input 'sampling_parameters' is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise InvalidRequestError(
            f"input 'sampling_parameters' must be a JSON object, not {_kind(given)}"
        )
    return given


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


_JSON = json.JSONDecoder(parse_constant=_no_constant)


def decoded(value: Any) -> Any:
    """The list or object of a JSON text; any other value, and text of another kind, as it is."""
    if not isinstance(value, str) or len(value) > _LONGEST or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return _JSON.decode(value)
    except (ValueError, RecursionError):
        return value


def refuse(name: str, complaint: str) -> NoReturn:
    """Raise the error that names the parameter: `complaint` says what is wrong with it."""
    raise InvalidRequestError(f"sampling parameter '{name}' {complaint}")


def refuse_unknown(name: str, backend: str, known: Iterable[str]) -> NoReturn:
    """Refuse a parameter that the backend does not know; one of `known` may have been meant."""
    refuse(name, f"is not supported by the {backend} backend{suggestion(name, known, _SIMILARITY)}")


def check_length(max_tokens: int | None, context: int) -> None:
    """Refuse more tokens than a model's context has, which none of its answers could have.

    What a prompt leaves of the context is a limit of its own, at which generation ends.
    """
    if max_tokens is not None and max_tokens > context:
        refuse(
            "max_tokens",
            f"must be at most {context}, the model's context length, not {max_tokens}",
        )


def check_stops(stops: Sequence[str]) -> None:
    """Refuse stop strings that are too many or too long to be looked for at every token."""
    if complaint := stops_complaint(stops):
        refuse("stop", complaint)


def check_count(name: str, ids: Sized, most: int = _MOST_IDS) -> None:
    """Refuse more token ids than an engine takes without others waiting for it."""
    if len(ids) > most:
        refuse(name, f"must hold at most {most} token ids, not {len(ids)}")


class ParameterReader:
    """Reads parameters one by one; `refuse_unread` rejects the rest by name.

    Numbers and booleans may be written as strings, as some clients do (GP2-07).
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._left = dict(given)
        self._read: set[str] = set()

    def integer(
        self, name: str, default: int | None, low: int | None = None, high: int | None = None
    ) -> Any:
        """An integer between `low` and `high`, both included; `default` when not given."""
        if not self._reads(name):
            return default
        value = as_integer(name, self._left.pop(name))
        _check_range(name, value, low, high)
        return value

    def number(
        self, name: str, default: float, low: float | None = None, high: float | None = None
    ) -> float:
        """A finite number between `low` and `high`, both included."""
        if not self._reads(name):
            return default
        value = as_number(name, self._left.pop(name))
        _check_range(name, value, low, high)
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """A boolean."""
        return as_boolean(name, self._left.pop(name)) if self._reads(name) else default

    def anything(self, name: str) -> Any:
        """A value of any kind, which nothing here has checked; `None` when not given."""
        return self._left.pop(name) if self._reads(name) else None

    def strings(self, name: str) -> tuple[str, ...]:
        """A string or a list of strings, none of them empty."""
        if not self._reads(name):
            return ()
        value = self._left.pop(name)
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
            refuse(name, "must be a string or a list of strings")
        if "" in listed:
            refuse(name, "must not hold an empty string")
        return tuple(dict.fromkeys(listed))

    def integers(self, name: str, low: int, high: int) -> tuple[int, ...]:
        """A list of integers, or the JSON text of one, each between `low` and `high`."""
        if not self._reads(name):
            return ()
        listed = decoded(self._left.pop(name))
        if not isinstance(listed, list):
            refuse(name, f"must be a list of integers, not {_kind(listed)}")
        check_count(name, listed)
        values = tuple(as_integer(name, value) for value in listed)
        for value in values:
            _check_range(name, value, low, high)
        return values

    def fixed(self, name: str, only: bool, backend: str) -> None:
        """A boolean that may only have the value `only`."""
        if self.boolean(name, only) is not only:
            refuse(name, f"of {str(not only).lower()} is not supported by the {backend} backend")

    def refuse_unread(self, backend: str) -> None:
        """Reject the first parameter that was not read: the engine does not know it."""
        for name in self._left:
            refuse_unknown(name, backend, sorted(self._read))

    def _reads(self, name: str) -> bool:
        """Whether a parameter is given, which is known from now on."""
        self._read.add(name)
        return name in self._left


def as_integer(name: str, value: Any) -> int:
    """`value` as an integer: a number without a fraction, or a string that holds one."""
    if isinstance(value, str):
        value = _parse(value, int)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        refuse(name, "must be an integer")
    return value


def as_number(name: str, value: Any) -> float:
    """`value` as a finite number, or a string that holds one."""
    if isinstance(value, str):
        value = _parse(value, float)
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(name, "must be a number")
    try:
        number = float(value)
    except OverflowError:
        refuse(name, "is too large")
    if number - number != 0.0:
        refuse(name, "must be a finite number")
    return number


def as_boolean(name: str, value: Any) -> bool:
    """`value` as a boolean, or one of the strings `true` and `false` in any case."""
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.strip().lower())
    if not isinstance(value, bool):
        refuse(name, "must be a boolean")
    return value


def _parse(text: str, kind: type[int] | type[float]) -> int | float | None:
    try:
        return kind(text)
    except ValueError:
        return None


def _check_range(name: str, value: float, low: float | None, high: float | None) -> None:
    if low is not None and value < low:
        refuse(name, f"must be at least {low}, not {value}")
    if high is not None and value > high:
        refuse(name, f"must be at most {high}, not {value}")


def _kind(value: Any) -> str:
    names = {str: "a string", bool: "a boolean", list: "an array", dict: "an object"}
    return "null" if value is None else names.get(type(value), "a number")
