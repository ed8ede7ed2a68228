"""Fields that requests to a route of vLLM may have, to refuse others, which vLLM would ignore."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args, get_type_hints

from penstock.backend import suggestion

_LONGEST_NAME = 100


def fields_by_path(routes: Iterable[Any]) -> dict[str, frozenset[str]]:
    """The names of fields by the path of a route; without those that read no JSON."""
    found: dict[str, frozenset[str]] = {}
    for route in routes:
        endpoint = getattr(route, "endpoint", None)
        if endpoint is None:
            continue
        names = {name for model in _models(endpoint) for name in _names(model)}
        if names:
            found[str(route.path)] = frozenset(names)
    return found


def _models(endpoint: Any) -> Iterator[Any]:
    """The classes of requests that an endpoint takes."""
    function = inspect.unwrap(endpoint)
    hints = get_type_hints(function)
    hints.pop("return", None)
    for annotation in hints.values():
        for one in _alternatives(annotation):
            if hasattr(one, "model_fields"):
                yield one


def _alternatives(annotation: Any) -> Iterator[Any]:
    parts = get_args(annotation)
    if not parts:
        yield annotation
    for part in parts:
        yield from _alternatives(part)


def _names(model: Any) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield name
        if field.alias:
            yield str(field.alias)


def unknown_field(body: bytes, known: frozenset[str]) -> tuple[str, str] | None:
    """The first field that no request of the route has, and a hint at the nearest name.

    `None` also for a body that is not an object: vLLM says what is wrong with it.
    """
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, Mapping):
        return None
    for name in given:
        if name not in known:
            return name[:_LONGEST_NAME], suggestion(name[:_LONGEST_NAME], sorted(known))
    return None
