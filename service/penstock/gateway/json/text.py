"""JSON parser and writer: as lenient as Triton's, with a limit on the depth of nesting."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import inf, isinf
from typing import Any

import numpy as np

from penstock.core.errors import InferenceError, InvalidRequestError
from penstock.gateway.json.errors import (
    explain,
    number_too_big,
    overflow_error,
    skip_space,
    surrogate_error,
    trailing_error,
)
from penstock.gateway.json.slices import Text, as_text, decode_in_slices

MAX_DEPTH = 100
"""The limit on nested arrays and objects (contract H-38)."""

LARGE = 1 << 19
"""Texts of at least so many bytes should be parsed in a thread."""

_SLICED = 1 << 10
"""Texts of at least so many bytes are decoded in slices, which is faster from there on."""

_PART = 1 << 16
_BLOCK = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
# The pattern begins with a literal, which is searched quickly: texts full of escapes are long.
_LONE_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})")

_STEP = np.zeros(256, np.int8)
_STEP[[ord("["), ord("{")]] = 1
_STEP[[ord("]"), ord("}")]] = -1


def _first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else dict(reversed(pairs))


_DECODER = json.JSONDecoder(object_pairs_hook=_first_wins)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_SORTED = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def slices(values: list[Any]) -> Iterator[list[Any]]:
    """A list in slices, each converted by one call in a millisecond or two."""
    if len(values) <= _PART:
        yield values
        return
    for at in range(0, len(values), _PART):
        yield values[at : at + _PART]


def discard(values: list[Any]) -> None:
    """Clear a list in slices: freeing millions of numbers at once holds the GIL for long."""
    while values:
        del values[-_PART:]


def dump(value: Any) -> bytes:
    """`value` as JSON. Surrogates in strings stand for bytes that are not UTF-8."""
    return _ENCODER.encode(value).encode("utf-8", "surrogateescape")


def dump_sorted(value: Any) -> bytes:
    """As `dump`, with the members of objects sorted by name."""
    return _SORTED.encode(value).encode("utf-8", "surrogateescape")


def parse(data: Text) -> Any:
    """Parse JSON; of duplicate keys the first counts, NaN and Infinity are numbers.

    Bytes that are not UTF-8 become surrogates (see `dump`). A NUL after the value ends the text.
    Raises an `InferenceError` for invalid JSON.
    """
    if _is_deep(data):
        raise _too_deep()
    if data.startswith(_BYTE_ORDER_MARK):
        data = data[len(_BYTE_ORDER_MARK) :]
    value = decode_in_slices(data, _first_wins) if len(data) >= _SLICED else None
    if value is None:
        value = _whole(as_text(data))
    elif _has_infinity(value) and (overflow := overflow_error(as_text(data))):
        raise overflow
    if b"\\" in data and (at := _lone_surrogate(text := as_text(data))) is not None:
        raise surrogate_error(text, at)
    return value


def _lone_surrogate(text: str) -> int | None:
    """The offset of the first lone high surrogate that is escaped; `None` without."""
    places = (found.start() for found in _LONE_SURROGATE.finditer(text))
    return next((at for at in places if not _is_escaped(text, at)), None)


def _is_escaped(text: str, at: int) -> bool:
    """Whether the backslash there is itself escaped."""
    start = at
    while start and text[start - 1] == "\\":
        start -= 1
    return (at - start) % 2 == 1


def _whole(text: str) -> Any:
    """Decode the text in one piece; raises the error that describes it."""
    value, end = _decode(text)
    if _has_infinity(value) and (overflow := overflow_error(text[:end])):
        raise overflow
    end = skip_space(text, end)
    if end < len(text) and text[end] != "\0":
        raise trailing_error(text, end)
    return value


def _decode(text: str) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, skip_space(text, 0))
    except json.JSONDecodeError as error:
        raise explain(text, error) from error
    except ValueError as error:  # an integer with more digits than `int` converts
        raise overflow_error(text) or number_too_big() from error
    except RecursionError as error:  # brackets in strings hid the depth
        raise _too_deep() from error


def _has_infinity(value: Any) -> bool:
    """Whether a number is infinite, in lists of one type only: mixed lists are not tensors."""
    todo = [value]
    while todo:
        value = todo.pop()
        kind = type(value)
        if kind is dict:
            todo += value.values()
        elif kind is list:
            if value and type(value[0]) in (dict, list):
                todo += value
            elif any(inf in part or -inf in part for part in slices(value)):
                return True
        elif kind is float and isinf(value):
            return True
    return False


def _too_deep() -> InferenceError:
    return InvalidRequestError(
        f"failed to parse the request JSON buffer: nested deeper than {MAX_DEPTH} levels"
    )


def _is_deep(data: Text) -> bool:
    """Whether `data` is nested too deeply; cheap if brackets are few or well spread."""
    return _opened(data) > MAX_DEPTH and _seems_deep(data) and _depth(data) > MAX_DEPTH


def _opened(data: Text) -> int:
    """The number of opening brackets, those in strings included."""
    blocks = ((at, at + _BLOCK) for at in range(0, len(data), _BLOCK))
    return sum(data.count(b"[", *block) + data.count(b"{", *block) for block in blocks)


def _seems_deep(data: Text) -> bool:
    """Whether brackets nest too deeply if those in strings are counted too."""
    depth = 0
    codes = np.frombuffer(data, np.uint8)
    for start in range(0, len(codes), _BLOCK):
        depths = np.cumsum(_STEP[codes[start : start + _BLOCK]], dtype=np.int32) + depth
        if depths.max() > MAX_DEPTH:
            return True
        depth = int(depths[-1])
    return False


def _depth(data: Text) -> int:
    """The depth of brackets outside strings; counting stops beyond the limit."""
    depth = 0
    for token in _TOKEN.finditer(data):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth > MAX_DEPTH:
                break
        elif token[0] in (b"]", b"}"):
            depth -= 1
    return depth
