"""What JSON text tells without being decoded: its depth, its size in values, broken surrogates."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from penstock.core.errors import InvalidRequestError

MAX_DEPTH = 100
"""The limit on nested arrays and objects (contract H-38)."""

MOST_VALUES = 1 << 20
"""The default of how many values a large text may have, see `ValueCount`."""

_LISTS = 4
"""Lists that count as one value."""

_OBJECT = 8
"""Values that an object counts as, besides its names."""

Text = bytes | bytearray
Pairs = list[tuple[str, Any]]

_BLOCK = 1 << 16
_PAIR = len(r"\ud83d\ude00")
_HIGH, _LOW = rb"[89abAB][0-9a-fA-F]{2}", rb"[c-fC-F][0-9a-fA-F]{2}"
# The patterns begin with a literal, which is searched quickly: texts full of escapes are long.
_LONE_SURROGATE = re.compile(
    rb"\\u[dD](?:%b(?!\\u[dD]%b)|%b(?<!\\u[dD]%b\\u[dD]%b))" % (_HIGH, _LOW, _LOW, _HIGH, _LOW)
)
_BEHIND_A_BACKSLASH = re.compile(rb"\\\\u[dD]%b(\\u[dD]%b)" % (_HIGH, _LOW))
"""What looks like a pair; but where the backslash is escaped, its second half is a lone one."""
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)

_STEP = np.zeros(256, np.int8)
_STEP[[ord("["), ord("{")]] = 1
_STEP[[ord("]"), ord("}")]] = -1


class TooManyValuesError(InvalidRequestError):
    """A text holds more values than a request may have."""


class ValueCount:
    """Counts the values of a large text: a string, and a name, is one, an object eight, four lists
    are one, numbers and literals none. Raises `TooManyValuesError` beyond `most`.
    """

    def __init__(self, text: Text, most: int) -> None:
        self._most = self._left = most
        self._spend(_strings(text) + text.count(b"[") // _LISTS)

    def object(self) -> None:
        """Count an object, once it is decoded."""
        self._spend(_OBJECT)

    def _spend(self, cost: int) -> None:
        self._left -= cost
        if self._left < 0:
            raise TooManyValuesError(
                f"the JSON of the request has more than {self._most} values: a string counts as"
                " one, an object as eight, four lists as one, and numbers as none. Use"
                " --http-max-json-values to increase the limit, or send binary tensors."
            )


def _strings(text: Text) -> int:
    """The number of strings, from the quotes: those that are escaped belong to no string."""
    quotes = text.count(b'"')
    if quotes:
        quotes -= text.count(b'\\"')
    return quotes // 2


def lone_surrogate(data: Text) -> int | None:
    """The offset of a lone surrogate that is written as an escape; `None` without."""
    for start in range(0, len(data), _BLOCK):
        end = start + _BLOCK
        for found in _LONE_SURROGATE.finditer(data, start, end + _PAIR):
            if found.start() < end and not _is_escaped(data, found.start()):
                return found.start()
        for found in _BEHIND_A_BACKSLASH.finditer(data, start, end + _PAIR):
            if _is_escaped(data, found.start() + 1):
                return found.start(1)
    return None


def _is_escaped(text: Text, at: int) -> bool:
    """Whether the backslash there is itself escaped."""
    start, whole = at, False
    while start and not whole:
        begin = max(0, start - _BLOCK)
        part = text[begin:start]
        slashes = len(part) - len(part.rstrip(b"\\"))
        start -= slashes
        whole = slashes < len(part)
    return (at - start) % 2 == 1


def is_deep(data: Text, most: int = MAX_DEPTH) -> bool:
    """Whether `data` is nested too deeply; cheap if brackets are few or well spread."""
    opened = data.count(b"[") + data.count(b"{")
    return opened > most and _seems_deep(data, most) and _depth(data, most) > most


def _seems_deep(data: Text, most: int) -> bool:
    """Whether brackets nest too deeply if those in strings are counted too."""
    depth = 0
    codes = np.frombuffer(data, np.uint8)
    for start in range(0, len(codes), _BLOCK):
        depths = np.cumsum(_STEP[codes[start : start + _BLOCK]], dtype=np.int32) + depth
        if depths.max() > most:
            return True
        depth = int(depths[-1])
    return False


def _depth(data: Text, most: int) -> int:
    """The depth of brackets outside strings; counting stops beyond the limit."""
    found = 0
    for token in _TOKEN.finditer(data):
        if token[0] in (b"[", b"{"):
            found += 1
            if found > most:
                break
        elif token[0] in (b"]", b"}"):
            found -= 1
    return found


def as_text(data: Text) -> str:
    """Decode UTF-8; bytes that are not UTF-8 become surrogates."""
    return data.decode("utf-8", "surrogateescape")
