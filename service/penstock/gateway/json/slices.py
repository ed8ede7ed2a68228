"""A JSON decoder that works in slices, so that no step holds the GIL for long.

The standard library's decoder holds the GIL for the whole text. The long parts of a request are
the lists of its tensors: they are decoded separately, one slice at a time.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from typing import Any

_SLICE = 1 << 18
"""Characters that are decoded at a time; takes some milliseconds."""

Pairs = list[tuple[str, Any]]

_STRING = r'\s*+"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+'


def _list_within(levels: int) -> str:
    """A pattern of a balanced list with nested lists of up to `levels` levels."""
    inner = f"|{_list_within(levels - 1)}" if levels else ""
    return rf'\[(?:{_STRING}|[^"\[\]{{}}]++{inner})*+\]'


_DATA = re.compile(r'"data"\s*:\s*\[')
_VALUE = rf'(?:{_STRING}|[^"\[\]{{}},]++|\s*+{_list_within(3)}\s*+)'
_ELEMENTS = re.compile(rf"(?:{_VALUE},)+", re.DOTALL)
_LAST = re.compile(rf"{_VALUE}\]", re.DOTALL)
_OPEN = re.compile(r"\s*+\[")
_NEXT = re.compile(r"\s*+([,\]])")


class _UnusualError(Exception):
    """The text is invalid or of an unexpected form: decode it in one piece."""


def decode_in_slices(text: str, as_object: Callable[[Pairs], Any]) -> Any:
    """The decoded value; `None` if `text` has to be decoded in one piece, as invalid text has.

    `as_object` makes an object of its members.
    """
    mark, lists = secrets.token_hex(16), dict[str, list[Any]]()
    rest, at = [], 0
    try:
        while found := _DATA.search(text, at):
            rest.append(text[at : found.end() - 1])
            name = f"{mark}{len(lists)}"
            lists[name], at = _decode_list(text, found.end())
            rest.append(f'"{name}"')

        def with_lists(members: Pairs) -> Any:
            return as_object([(name, _put_back(value, lists)) for name, value in members])

        decoder = json.JSONDecoder(object_pairs_hook=with_lists)
        return decoder.decode("".join([*rest, text[at:]]))
    except (_UnusualError, ValueError, RecursionError):
        return None


def _put_back(value: Any, lists: dict[str, list[Any]]) -> Any:
    return lists.get(value, value) if type(value) is str else value


def _decode_list(text: str, at: int) -> tuple[list[Any], int]:
    """Decode the list of scalars and lists that begins at `at`; returns it and its end."""
    values: list[Any] = []
    while True:
        end = at + _SLICE
        if found := _ELEMENTS.match(text, at, end) or _LAST.match(text, at, end):
            at = found.end()
            values += _decode_part(text[found.start() : at - 1])
        elif opened := _OPEN.match(text, at):  # a list too long for one slice
            inner, at = _decode_list(text, opened.end())
            values.append(inner)
            if not (found := _NEXT.match(text, at)):
                raise _UnusualError
            at = found.end()
        else:
            raise _UnusualError
        if text[at - 1] == "]":
            return values, at


def _decode_part(text: str) -> list[Any]:
    values: list[Any] = json.loads(f"[{text}]")
    if not values:  # a comma without a value before or behind it
        raise _UnusualError
    return values
