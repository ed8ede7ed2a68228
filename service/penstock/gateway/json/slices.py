"""A JSON decoder that works in slices, so that no step holds the GIL for long.

A decoder holds the GIL for the whole text that it is given. The long parts of a request are the
lists of its tensors: they are decoded separately, one slice at a time, by orjson.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from typing import Any

import orjson

_SLICE = 1 << 18
"""Bytes that are decoded at a time; takes a millisecond or two."""

Text = bytes | bytearray
Pairs = list[tuple[str, Any]]

_STRING = rb'\s*+"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+'


def _list_within(levels: int) -> bytes:
    """A pattern of a balanced list with nested lists of up to `levels` levels."""
    inner = b"|" + _list_within(levels - 1) if levels else b""
    return rb'\[(?:%b|[^"\[\]{}]++%b)*+\]' % (_STRING, inner)


_DATA = re.compile(rb'"data"\s*:\s*\[')
_VALUE = rb'(?:%b|[^"\[\]{},]++|\s*+%b\s*+)' % (_STRING, _list_within(3))
_ELEMENTS = re.compile(rb"(?:%b,)+" % _VALUE, re.DOTALL)
_LAST = re.compile(rb"%b\]" % _VALUE, re.DOTALL)
_OPEN = re.compile(rb"\s*+\[")
_NEXT = re.compile(rb"\s*+([,\]])")
_TOO_LARGE = float(1 << 63)
_MARKS = (b'"', b"[", b"{", b"}")
"""Without these, the text of a list is numbers and literals: it can be cut at any comma."""


class _UnusualError(Exception):
    """The text is invalid or of an unexpected form: decode it in one piece."""


def decode_in_slices(text: Text, as_object: Callable[[Pairs], Any]) -> Any:
    """The decoded value; `None` if `text` has to be decoded in one piece, as invalid text has.

    `as_object` makes an object of its members.
    """
    mark, lists = secrets.token_hex(16), dict[str, list[Any]]()
    rest, at = list[Text](), 0
    try:
        while found := _DATA.search(text, at):
            rest.append(text[at : found.end() - 1])
            name = f"{mark}{len(lists)}"
            lists[name], at = _decode_list(text, found.end())
            rest.append(f'"{name}"'.encode())

        def with_lists(members: Pairs) -> Any:
            return as_object([(name, _put_back(value, lists)) for name, value in members])

        decoder = json.JSONDecoder(object_pairs_hook=with_lists)
        return decoder.decode(as_text(b"".join([*rest, text[at:]])))
    except (_UnusualError, ValueError, RecursionError):
        return None


def as_text(data: Text) -> str:
    """Decode UTF-8; bytes that are not UTF-8 become surrogates."""
    return data.decode("utf-8", "surrogateescape")


def _put_back(value: Any, lists: dict[str, list[Any]]) -> Any:
    return lists.get(value, value) if type(value) is str else value


def _decode_list(text: Text, at: int) -> tuple[list[Any], int]:
    """Decode the list of scalars and lists that begins at `at`; returns it and its end."""
    values: list[Any] = []
    while True:
        if end := _slice_end(text, at):
            values += _decode_part(text[at : end - 1])
            at = end
        elif opened := _OPEN.match(text, at):  # a list too long for one slice
            inner, at = _decode_list(text, opened.end())
            values.append(inner)
            if not (found := _NEXT.match(text, at)):
                raise _UnusualError
            at = found.end()
        else:
            raise _UnusualError
        if text[at - 1 : at] == b"]":
            return values, at


def _slice_end(text: Text, at: int) -> int:
    """The offset behind the last comma of a slice or behind the list's end; 0 without either."""
    end = at + _SLICE
    close = text.find(b"]", at, end)
    if not any(text.find(mark, at, end if close < 0 else close) >= 0 for mark in _MARKS):
        return (text.rfind(b",", at, end) if close < 0 else close) + 1
    found = _ELEMENTS.match(text, at, end) or _LAST.match(text, at, end)
    return found.end() if found else 0


def _decode_part(part: Text) -> list[Any]:
    text = b"".join((b"[", part, b"]"))
    values: list[Any]
    try:
        values = orjson.loads(text)
        exact = _all_have_a_point(text) or not _holds_large_double(values)
    except orjson.JSONDecodeError:  # NaN, Infinity or surrogates, or invalid JSON
        exact = False
    if not exact:
        values = json.loads(as_text(text))
    if not values:  # a comma without a value before or behind it
        raise _UnusualError
    return values


def _all_have_a_point(text: Text) -> bool:
    """Whether each value is a number with a decimal point, of which it has one at most."""
    return b'"' not in text and text.count(b".") > text.count(b",")


def _holds_large_double(values: list[Any]) -> bool:
    """Whether a double may have been an integer of more than 64 bits, which orjson rounds."""
    types = set(map(type, values))
    if list in types and any(_holds_large_double(v) for v in values if type(v) is list):
        return True
    return float in types and any(type(v) is float and abs(v) >= _TOO_LARGE for v in values)
