"""`model_config_parameters` of Model Analyzer: values of fields of `config.pbtxt`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from penstock.core.nearest_name import suggestion
from penstock.protocol.model_config_pb2 import ModelConfig
from penstock_client.tune.errors import TuneError
from penstock_client.tune.settings import DELAY, PARAMETER

_NAMES = {"dynamic_batching.max_queue_delay_microseconds": DELAY}


def dimensions(section: Mapping[str, Any], where: str) -> Iterator[tuple[str, list[Any]]]:
    """Names of settings with their values; raises `TuneError` for fields that do not exist.

    A list is a list of values to try; for a field that holds several, such as
    `preferred_batch_size`, a list of lists is.
    """
    for path, field, value in _leaves(section, ModelConfig.DESCRIPTOR, (), where):
        name = ".".join(path)
        if path[0] == "parameters" and len(path) == 2:
            yield PARAMETER + path[1], [str(each) for each in _parameter(value)]
        else:
            yield _NAMES.get(name, name), _alternatives(value, field)


def _leaves(
    section: Any, message: Any, path: tuple[str, ...], where: str
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """The path, the field and the value of whatever is not a message of single fields."""
    if not isinstance(section, Mapping):
        raise TuneError(f"{where}: {'.'.join(path) or 'this'} is not a mapping of fields")
    for name, value in section.items():
        field = message.fields_by_name.get(name)
        if field is None:
            names = [each.name for each in message.fields]
            raise TuneError(
                f"{where}: config.pbtxt has no field '{'.'.join((*path, str(name)))}'"
                f"{suggestion(str(name), names)}"
            )
        below = (*path, str(name))
        if _is_map(field) and isinstance(value, Mapping):
            yield from (((*below, str(key)), field, entry) for key, entry in value.items())
        elif field.message_type is not None and not field.is_repeated and value:
            yield from _leaves(value, field.message_type, below, where)
        else:
            yield below, field, value


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _parameter(value: Any) -> list[Any]:
    """Values of an entry of `parameters`: `{string_value: [...]}`."""
    text = value.get("string_value") if isinstance(value, Mapping) else value
    return text if isinstance(text, list) else [text]


def _alternatives(value: Any, field: Any) -> list[Any]:
    """The values to try of one field."""
    if not field.is_repeated:
        return list(value) if isinstance(value, list) else [value]
    if not isinstance(value, list):
        return [[value]]
    lists = value if value and all(isinstance(each, list) for each in value) else [value]
    return [list(chosen) for each in lists for chosen in product(*map(_entries, each))]


def _entries(entry: Any) -> Sequence[Any]:
    """An entry of a repeated field, once for each combination of lists in it."""
    if not isinstance(entry, Mapping):
        return [entry]
    values = [each if isinstance(each, list) else [each] for each in entry.values()]
    return [dict(zip(entry, chosen, strict=True)) for chosen in product(*values)]
