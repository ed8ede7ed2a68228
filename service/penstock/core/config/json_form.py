"""JSON codec of configurations: original field names, plain numbers, enumerations by name.

Written as protobuf prints it, and read as leniently as protobuf's C++ library reads it: numbers and
booleans may be strings, names of enumerations in any case or numbers, one value stands for a list
of one, lists in a list for their elements, and null for nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from penstock.core.config.model import ModelConfig
from penstock.core.config.schema import NO_DATATYPE, ConfigPart, Field, Label, fields_of
from penstock.core.errors import ConfigError
from penstock.core.nearest_name import suggestion
from penstock.core.tensor import DataType

Part = TypeVar("Part", bound=ConfigPart)


def config_from_json(value: Any) -> ModelConfig:
    """Parse a decoded JSON object; raises `ConfigError` with the path of the field."""
    return _message(ModelConfig, value, "")


def config_to_json(config: ModelConfig, *, with_defaults: bool = False) -> dict[str, Any]:
    """`config` as a JSON object, of its non-default fields or of all."""
    return _object(config, with_defaults)


# -- reading ---------------------------------------------------------------------------------


def _message(cls: type[Part], value: Any, path: str) -> Part:
    if not isinstance(value, Mapping):
        raise _unexpected(path or "the configuration", "an object", value)
    known = _by_json_name(cls)
    given: dict[str, Any] = {}
    for key, item in value.items():
        field = known.get(key)
        if field is None:
            raise ConfigError(
                f"unknown field {_join(path, key)!r} in model configuration"
                f"{suggestion(key, [each.name for each in fields_of(cls)])}"
            )
        if field.attribute in given:
            raise ConfigError(f"field '{_join(path, field.name)}' is given twice")
        if item is not None:
            given[field.attribute] = _field_value(field, item, _join(path, field.name))
    try:
        return cls(**given)
    except ConfigError as error:
        raise ConfigError(_join(path, str(error))) from error


def _by_json_name(cls: type[ConfigPart]) -> Mapping[str, Field]:
    """Fields by both names that protobuf accepts in JSON: as declared and in camel case."""
    return {
        spelling: field for field in fields_of(cls) for spelling in (field.name, _camel(field.name))
    }


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _field_value(field: Field, value: Any, path: str) -> Any:
    if field.label is Label.REPEATED:
        return tuple(
            _single(field, item, f"{path}[{at}]") for at, item in enumerate(_elements(value))
        )
    if field.label is Label.MAP:
        if not isinstance(value, Mapping):
            raise _unexpected(path, "an object", value)
        found = {
            _key(field, key, path): _single(field, item, f"{path}[{key!r}]")
            for key, item in value.items()
            if item is not None
        }
        return dict(sorted(found.items()))  # protobuf's order differs from run to run
    return _single(field, value, path)


def _elements(value: Any) -> Iterator[Any]:
    """The elements of a list and of lists in it, or a single value; without nulls."""
    if not isinstance(value, list | tuple):
        yield value
        return
    for item in value:
        if isinstance(item, list | tuple):
            yield from _elements(item)
        elif item is not None:
            yield item


def _key(field: Field, key: Any, path: str) -> Any:
    return (_integer if field.key is int else _text)(field, key, f"{path}[{key!r}]")


def _single(field: Field, value: Any, path: str) -> Any:
    if field.is_message:
        return _message(field.element, value, path)
    if field.names:
        return _enum(field, value, path)
    return _SCALARS[field.element](field, value, path)


def _enum(field: Field, value: Any, path: str) -> Any:
    name = _enum_name(field.names, value)
    if name is None:
        hint = suggestion(value, field.names) if isinstance(value, str) else ""
        raise _unexpected(path, f"one of {', '.join(field.names)}", value, hint)
    if field.element is DataType:
        return None if name == NO_DATATYPE else DataType.from_config(name)
    return field.element(name)


def _enum_name(names: Sequence[str], value: Any) -> str | None:
    """The name that a value means: a name in any case, also with dashes, or a number."""
    if isinstance(value, str):
        if not value.isdecimal():
            name = value.upper().replace("-", "_")
            return name if name in names else None
        value = int(value) if value.isascii() else -1
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return next((name for number, name in enumerate(names) if number == value), None)


_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
"""Words for booleans, in any case."""


def _boolean(field: Field, value: Any, path: str) -> bool:
    if isinstance(value, str):
        value = _BOOLEANS.get(value.lower(), value)
    if isinstance(value, bool):
        return value
    raise _unexpected(path, "true or false", value)


def _text(field: Field, value: Any, path: str) -> str:
    """A string without lone surrogates, which JSON can express but UTF-8 cannot."""
    if isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value):
        return value
    raise _unexpected(path, "a string", value)


_INTEGER = re.compile(r"-?[0-9]{1,20}")


def _integer(field: Field, value: Any, path: str) -> int:
    """An integer, or a string of one, as protobuf prints 64-bit integers."""
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _unexpected(path, "an integer", value)


def _number(field: Field, value: Any, path: str) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise _unexpected(path, "a number", value)


_SCALARS: Mapping[type[Any], Callable[[Field, Any, str], Any]] = {
    bool: _boolean,
    str: _text,
    int: _integer,
    float: _number,
}


def _unexpected(path: str, expected: str, value: Any, hint: str = "") -> ConfigError:
    return ConfigError(f"{path}: expected {expected}, got {value!r}{hint}")


# -- writing ---------------------------------------------------------------------------------


def _object(part: ConfigPart, with_defaults: bool) -> dict[str, Any]:
    printed: dict[str, Any] = {}
    for field in fields_of(type(part)):
        value = getattr(part, field.attribute)
        if _is_printed(field, value, with_defaults and field.name not in part.RECENT):
            printed[field.name] = _printed(field, value, with_defaults)
    return printed


def _is_printed(field: Field, value: Any, with_defaults: bool) -> bool:
    if field.label is Label.OPTIONAL:
        return value is not None
    return with_defaults or bool(value != field.default)


def _printed(field: Field, value: Any, with_defaults: bool) -> Any:
    if field.label is Label.REPEATED:
        return [_print_single(field, item, with_defaults) for item in value]
    if field.label is Label.MAP:
        return {str(k): _print_single(field, item, with_defaults) for k, item in value.items()}
    return _print_single(field, value, with_defaults)


def _print_single(field: Field, value: Any, with_defaults: bool) -> Any:
    if field.is_message:
        return _object(value, with_defaults)
    if field.element is DataType:
        return NO_DATATYPE if value in (None, DataType.INVALID) else value.config_name
    if field.names:
        return value.value
    return _print_number(value) if field.element is float else value


def _print_number(value: float) -> float | str:
    """Whole numbers without a fraction; non-finite ones as the strings of protobuf."""
    if math.isfinite(value):
        return int(value) if value.is_integer() else value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
