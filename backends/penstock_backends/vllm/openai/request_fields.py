"""Checks of requests to vLLM's routes, for fields that it would ignore or not survive."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args, get_type_hints

from penstock.backend import suggestion
from penstock_backends.language_model import asks_for_nothing

_LONGEST_NAME = 100

_MOST_MEMBERS: Final = 20_000
"""Members of all lists in a body: vLLM makes errors of each wrong one, for each type that it might
have been. Twenty thousand wrong messages hold 364 MiB until they are sent."""
_MOST_ITEMS: Final = 1000
"""Items of one response's input: each wrong one is 233 errors, which hold 1 MiB."""
_MOST_IDS: Final = 1 << 20
"""Token ids in one list; a prompt that is to be shortened may have more than the context."""
_IDS: Final = {
    "/v1/completions": "prompt",
    "/v1/embeddings": "input",
    "/classify": "input",
    "/pooling": "input",
    "/detokenize": "tokens",
    "/inference/v1/generate": "token_ids",
}
"""The fields of token ids by path."""

_BYTES_OF_TOKEN: Final = 32
_SHORT: Final = 1 << 20
_WHOLE: Final = ("/tokenize", "/detokenize")
"""Routes that answer for texts of any length, in which vLLM itself sees no limit."""


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


def read_object(body: bytes) -> Mapping[str, Any]:
    """The object of a body; an empty one for JSON of another kind, which vLLM refuses.

    Raises `ValueError` for what is not JSON: text that is not UTF-8, of which vLLM's answer has
    another form, and NaN, which it would take as the bias of a token.
    """
    try:
        given = json.loads(body, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return given if isinstance(given, Mapping) else {}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def unknown_field(given: Mapping[str, Any], known: frozenset[str]) -> tuple[str, str] | None:
    """The first field that no request of the route has, and a hint at the nearest name.

    Fields of OpenAI's that ask for nothing are let through: clients send them to any server.
    """
    for name, value in given.items():
        if name not in known and not asks_for_nothing(name, value):
            return name[:_LONGEST_NAME], suggestion(name[:_LONGEST_NAME], sorted(known))
    return None


def too_large(
    path: str, given: Mapping[str, Any], size: int, context: int
) -> tuple[str, str] | None:
    """The field by which a body of `size` bytes is too large for a route, and how.

    `context` is the model's length, in tokens.
    """
    longest = max(_SHORT, context * _BYTES_OF_TOKEN)
    if path in _WHOLE and size > longest:
        name = next((one for one in ("prompt", "tokens") if one in given), "messages")
        return name, f"comes to {size} bytes, more than {longest}"
    items = given.get("input") if path.startswith("/v1/responses") else None
    if isinstance(items, list) and len(items) > _MOST_ITEMS:
        return "input", f"holds {len(items)} items, more than {_MOST_ITEMS}"
    return _with_many_members(given, _IDS.get(path, ""))


def _with_many_members(given: Mapping[str, Any], ids: str) -> tuple[str, str] | None:
    """The field at which lists have too many members; those of token ids are in the field `ids`."""
    members = 0
    for name, value in given.items():
        left = [value]
        while left:
            one = left.pop()
            if isinstance(one, dict):
                left += one.values()
            elif isinstance(one, list) and name == ids and _are_ids(one):
                if len(one) > _MOST_IDS:
                    return name, f"holds {len(one)} token ids, more than {_MOST_IDS}"
            elif isinstance(one, list):
                members += len(one)
                if members > _MOST_MEMBERS:
                    return name, f"holds more than {_MOST_MEMBERS} members of lists"
                left += one
    return None


def _are_ids(given: list[Any]) -> bool:
    return all(type(one) is int for one in given)
