"""`ParameterFields`: a parameter of a model whose value is JSON, field by field."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from math import isfinite
from typing import Any

from penstock.backend import ConfigError, DataType, ModelConfig, suggestion


class ParameterFields:
    """One JSON object; each method gives a field, or raises `ConfigError` with its name.

    A field that is absent is `None` unless a method says otherwise.
    """

    def __init__(self, parameter: str, given: Mapping[str, Any]) -> None:
        self._parameter = parameter
        self._given = given

    def check_known(self, known: Collection[str]) -> None:
        """Refuse fields of any other name."""
        for name in self._given:
            if name not in known:
                raise ConfigError(
                    f"parameter '{self._parameter}' has no field '{name}'"
                    f"{suggestion(name, known, 0.5)}; its fields are: {', '.join(known)}"
                )

    def text(self, name: str) -> str:
        """A text that must be there and not be empty."""
        if name not in self._given:
            raise ConfigError(f"parameter '{self._parameter}' needs the field '{name}'")
        return str(self._field(name, "a text", lambda value: isinstance(value, str) and value))

    def choice(self, name: str, choices: Collection[str]) -> str | None:
        """One of the texts `choices`."""
        value: str | None = self._field(name, "/".join(choices), lambda value: value in choices)
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._field(name, "true or false", lambda value: isinstance(value, bool))
        return default if value is None else bool(value)

    def number(self, name: str, *, positive: bool = False) -> float | None:
        """A finite number."""
        what = "a positive number" if positive else "a number"
        value = self._field(name, what, lambda v: is_number(v) and (v > 0 or not positive))
        return None if value is None else float(value)

    def whole(self, name: str, most: int) -> int | None:
        """A whole number from 1 to `most`."""
        what = f"a whole number from 1 to {most}"
        value: int | None = self._field(name, what, lambda v: is_whole(v) and 0 < v <= most)
        return value

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """A list of finite numbers; one number stands for a list of it alone."""
        value = self._field(name, "a number or a list of numbers", _are_numbers)
        if value is None:
            return None
        return tuple(map(float, value if isinstance(value, list) else [value]))

    def size(self, name: str, least: int = 1) -> int | tuple[int, int] | None:
        """A number of pixels, or width and height, each at least `least`."""
        what = "a positive whole number or [width, height]"
        value = self._field(name, what, lambda value: _is_size(value, least))
        return (value[0], value[1]) if isinstance(value, list) else value

    def datatype(self, name: str, choices: Collection[DataType]) -> DataType | None:
        """One of some datatypes, by its name such as `FP32`."""
        chosen = self.choice(name, [each.name for each in choices])
        return None if chosen is None else DataType[chosen]

    def refused(self, name: str, what: str) -> ConfigError:
        """The error of a field that must be `what`."""
        value = json.dumps(self._given.get(name))
        return ConfigError(f"parameter '{self._parameter}': '{name}' must be {what}, not {value}")

    def _field(self, name: str, what: str, valid: Callable[[Any], Any]) -> Any:
        if name not in self._given:
            return None
        value = self._given[name]
        if not valid(value):
            raise self.refused(name, what)
        return value


def fields_of(config: ModelConfig, parameter: str) -> list[ParameterFields]:
    """The objects of a parameter that is one, or a list of several; raises `ConfigError`."""
    text = config.parameter(parameter)
    if text is None:
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"parameter '{parameter}' is not JSON: {error}") from error
    found = value if isinstance(value, list) else [value]
    if not found or not all(isinstance(each, dict) for each in found):
        raise ConfigError(
            f'parameter \'{parameter}\' must be an object such as {{"input": "..."}}, or a list of'
            " them"
        )
    return [ParameterFields(parameter, each) for each in found]


def is_number(value: Any) -> bool:
    """Whether a value of JSON is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def is_whole(value: Any) -> bool:
    """Whether a value of JSON is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def _are_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(is_number, value))
    return is_number(value)


def _is_size(value: Any, least: int) -> bool:
    if is_whole(value):
        return bool(value > 0)
    if not isinstance(value, list) or len(value) != 2 or not all(map(is_whole, value)):
        return False
    return bool(min(value) >= least and max(value) > 0)
