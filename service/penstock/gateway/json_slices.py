"""Large JSON decoded in slices, so that no step of it keeps other threads waiting for long.

The decoder of the standard library is one call that holds the interpreter. What is long in a
request are the lists of its tensors: they are decoded by themselves, a part at a time.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from typing import Any

_SLICE = 1 << 18
"""Characters that are decoded at a time: some milliseconds."""

Pairs = list[tuple[str, Any]]

_STRING = r'\s*+"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+'
_DATA = re.compile(r'"data"\s*:\s*\[')
_ELEMENTS = re.compile(rf'(?:(?:{_STRING}|[^"\[\]{{}},]++),)+', re.DOTALL)
_LAST = re.compile(rf'(?:{_STRING}|[^"\[\]{{}},]++)\]', re.DOTALL)


class _UnusualError(Exception):
    """The text is wrong, or of another form: it has to be decoded in one piece."""


def decode_in_slices(text: str, as_object: Callable[[Pairs], Any]) -> Any:
    """What `text` says; `None` where it is wrong or where no more can be said.

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
    """The list of plain values that begins at `at`, and where it ends."""
    values: list[Any] = []
    while found := _ELEMENTS.match(text, at, at + _SLICE):
        values += _decode_part(text[at : found.end() - 1])
        at = found.end()
    last = _LAST.match(text, at, at + _SLICE)
    if last is None:
        raise _UnusualError
    values += _decode_part(text[at : last.end() - 1])
    return values, last.end()


def _decode_part(text: str) -> list[Any]:
    values: list[Any] = json.loads(f"[{text}]")
    if not values:  # a comma with nothing before or behind it
        raise _UnusualError
    return values
