"""Lists of numbers in JSON, decoded into arrays: the tensors of requests.

orjson decodes them and `struct` packs them: no check looks at single elements.
"""

from __future__ import annotations

import json
import re
import secrets
import struct
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import numpy as np
import orjson

from penstock.core.tensor import Array
from penstock.gateway.json.scan import Pairs, Text, as_text

MOST_NESTED = 8
"""Levels of lists that a list of numbers may have, itself included."""

_LEAST = 512
"""Bytes of the shortest text: one that is shorter is decoded at once in less time."""

_SLICE = 1 << 18
"""Bytes that are decoded at a time; takes half a millisecond."""

_NESTED_SLICE = 1 << 20
"""Bytes of the longest nested list, which is decoded at once."""

_BETWEEN = 1 << 16
"""Bytes between the lists of the longest text, and around them four times as many."""

_MOST_LISTS = 64

_DATA = re.compile(rb'"data"[ \t\r\n]*+:[ \t\r\n]*+\[[ \t\r\n]*+(?=([-0-9\[]))')
_MARK = secrets.token_hex(16)
"""Begins strings that stand for lists, which are in no client's text."""

_FLOAT_MARKS = (b".", b"e", b"E")


class NumberList:
    """The numbers of a JSON list that holds no others, in order, nested in whatever way.

    `array` is of int64, or of uint64 if one is too large for that; of float64 if a number has a
    point or an exponent, and then integers are rounded to doubles.
    """

    __slots__ = ("_at", "_end", "_text", "array")

    def __init__(self, array: Array, text: Text, at: int, end: int) -> None:
        self.array = array
        self._text = text
        self._at = at
        self._end = end

    def first_float(self) -> int:
        """The index of the first number with a point or an exponent, of those that have one."""
        places = (self._text.find(mark, self._at, self._end) for mark in _FLOAT_MARKS)
        return self._text.count(b",", self._at, min(place for place in places if place >= 0))


def decode_with_numbers(
    text: Text, as_object: Callable[[Pairs], Any], is_deep: Callable[[Text], bool]
) -> Any:
    """The value of a text whose lists named `data` are all of numbers: they are `NumberList`s.

    `None` for any other text, and for one that is unusual or invalid. `as_object` makes an object
    of its members, `is_deep` refuses what is around the lists.
    """
    if len(text) < _LEAST:
        return None
    lists: dict[str, NumberList] = {}
    around, at = list[Text](), 0
    while found := _DATA.search(text, at, at + _BETWEEN):
        begin = text.index(b"[", found.start())
        decoded = _decode_list(text, begin, nested=found[1] == b"[")
        if decoded is None or len(lists) == _MOST_LISTS:
            return None
        name = f"{_MARK}{len(lists)}"
        lists[name], end = decoded
        around += text[at:begin], f'"{name}"'.encode()
        at = end
    if not lists or len(text) - at > _BETWEEN:
        return None
    outer = b"".join([*around, text[at:]])
    if len(outer) > 4 * _BETWEEN or b"\\u" in outer or is_deep(outer):
        return None

    def with_lists(members: Pairs) -> Any:
        return as_object([(name, _put_back(value, lists)) for name, value in members])

    try:
        return json.JSONDecoder(object_pairs_hook=with_lists).decode(as_text(outer))
    except (ValueError, RecursionError):
        return None


def _put_back(value: Any, lists: Mapping[str, NumberList]) -> Any:
    """The list that a string stands for, or the value itself."""
    return lists.get(value, value) if type(value) is str else value


def _decode_list(text: Text, at: int, *, nested: bool) -> tuple[NumberList, int] | None:
    """The list whose bracket is at `at`, and its end; `None` if it holds anything but numbers."""
    decoded = _nested_array(text, at) if nested else _flat_array(text, at)
    if decoded is None:
        return None
    array, end = decoded
    return NumberList(array, text, at, end), end


def _flat_array(text: Text, at: int) -> tuple[Array, int] | None:
    """The numbers of a list without others in it, decoded in slices, and its end."""
    arrays = []
    begin = at + 1
    while True:
        close = text.find(b"]", begin, begin + _SLICE)
        end = text.rfind(b",", begin, begin + _SLICE) if close < 0 else close
        if end < 0:
            return None
        whole = begin == at + 1 and close >= 0
        array = _array(text, at, close + 1) if whole else _slice_array(text, begin, end)
        if array is None:
            return None
        arrays.append(array)
        if close >= 0:
            joined = _joined(arrays)
            return None if joined is None else (joined, close + 1)
        begin = end + 1


def _nested_array(text: Text, at: int) -> tuple[Array, int] | None:
    """The numbers of a list of lists, and its end: the last bracket before other text."""
    marks = (text.find(mark, at, at + _NESTED_SLICE) for mark in (b'"', b"}"))
    behind = min((mark for mark in marks if mark >= 0), default=0)
    end = text.rfind(b"]", at, behind) + 1
    array = _array(text, at, end) if end else None
    return None if array is None else (array, end)


def _slice_array(text: Text, begin: int, end: int) -> Array | None:
    """As `_array`, of elements without the brackets around them."""
    part = b"".join((b"[", text[begin:end], b"]"))
    return _array(part, 0, len(part))


def _array(text: Text, at: int, end: int) -> Array | None:
    """The numbers of a list as an array; `None` if it is empty, or holds anything else."""
    if any(text.find(mark, at, end) >= 0 for mark in (b"u", b"l")):  # true, false, null
        return None
    try:
        values = _flattened(orjson.loads(memoryview(text)[at:end]))
        if not values:
            return None
        if any(text.find(mark, at, end) >= 0 for mark in _FLOAT_MARKS):
            return np.frombuffer(struct.pack(f"{len(values)}d", *values))
        return _integers(values)
    except (orjson.JSONDecodeError, struct.error, OverflowError):
        return None


def _integers(values: list[Any]) -> Array:
    """Integers as an array; raises `struct.error` for those of more than 64 bits, now doubles."""
    try:
        return np.frombuffer(struct.pack(f"{len(values)}q", *values), np.int64)
    except struct.error:
        return np.frombuffer(struct.pack(f"{len(values)}Q", *values), np.uint64)


def _flattened(values: list[Any]) -> list[Any]:
    """The elements of lists in lists; none if a level holds lists and others, or empty ones."""
    for _ in range(MOST_NESTED):
        if not values or type(values[0]) is not list:
            return values
        if set(map(type, values)) != {list} or not all(values):
            return []
        values = list(chain.from_iterable(values))
    return []


def _joined(arrays: list[Array]) -> Array | None:
    """The slices of a list as one array; `None` if no integers of 64 bits hold all of them."""
    if len(arrays) == 1:
        return arrays[0]
    kinds = {array.dtype.kind for array in arrays}
    if "f" in kinds:
        return np.concatenate([array.astype(np.float64, copy=False) for array in arrays])
    return np.concatenate(arrays) if len(kinds) == 1 else None
