"""JSON parser and writer: as lenient as Triton's, with a limit on the depth of nesting."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from math import inf, isinf
from typing import Any

import numpy as np
import orjson

from penstock.core.buffer import Buffer
from penstock.core.errors import InferenceError, InvalidRequestError
from penstock.gateway.json.errors import (
    explain,
    invalid_value,
    number_too_big,
    overflow_error,
    skip_space,
    surrogate_error,
    trailing_error,
)
from penstock.gateway.json.long_lists import discard, slices
from penstock.gateway.json.members import RepeatedMembers
from penstock.gateway.json.number_lists import MOST_NESTED, decode_with_numbers
from penstock.gateway.json.slices import (
    MAX_DEPTH,
    MOST_VALUES,
    Slicer,
    Text,
    TooDeepError,
    TooManyValuesError,
    UnusualError,
    WrongStringError,
    as_text,
    decode_in_slices,
    depth,
    is_escaped,
)
from penstock.gateway.json.thread import give_turn

LARGE = 1 << 17
"""Texts of at least so many bytes are large, see `is_large`: less takes some milliseconds."""

_CHEAP = 1 << 14
_CONTAINERS = 1 << 12
"""Braces and brackets that a text of more bytes may have without being large.

An object takes a microsecond, and a list in lists about as much.
"""

SLICED = 1 << 10
"""Texts of at least so many bytes are decoded in slices, which is faster from there on."""

_FEW = 1 << 8
"""Elements of a list that is looked through at once."""

_BLOCK = 1 << 18
_PAIR = len(r"\ud83d\ude00")
_WINDOW = 1 << 19
"""Bytes in which an error is searched, from the end of the valid text."""
_MARGIN = 64
"""Bytes at the end of this window in which an error may come from the cut."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HIGH, _LOW = rb"[89abAB][0-9a-fA-F]{2}", rb"[c-fC-F][0-9a-fA-F]{2}"
# The patterns begin with a literal, which is searched quickly: texts full of escapes are long.
_LONE_SURROGATE = re.compile(
    rb"\\u[dD](?:%b(?!\\u[dD]%b)|%b(?<!\\u[dD]%b\\u[dD]%b))" % (_HIGH, _LOW, _LOW, _HIGH, _LOW)
)
_BEHIND_A_BACKSLASH = re.compile(rb"\\\\u[dD]%b(\\u[dD]%b)" % (_HIGH, _LOW))
"""What looks like a pair; but where the backslash is escaped, its second half is a lone one."""

_STEP = np.zeros(256, np.int8)
_STEP[[ord("["), ord("{")]] = 1
_STEP[[ord("]"), ord("}")]] = -1


def _first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    return RepeatedMembers(dict(reversed(pairs)), [name for name, _ in pairs])


_DECODER = json.JSONDecoder(object_pairs_hook=_first_wins)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_PLAIN = frozenset({str, int, bool})
"""What orjson writes as `json` does, and in a fifth of the time."""

_SORTED = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def dump(value: Any) -> bytes:
    """`value` as JSON. Surrogates in strings stand for bytes that are not UTF-8."""
    return _ENCODER.encode(value).encode("utf-8", "surrogateescape")


def dump_sorted(value: Any) -> bytes:
    """As `dump`, with the members of objects sorted by name."""
    if type(value) is dict and _PLAIN.issuperset(map(type, value.values())):
        with suppress(TypeError):  # a surrogate, or an integer beyond 64 bits
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return _SORTED.encode(value).encode("utf-8", "surrogateescape")


def is_large(data: Buffer) -> bool:
    """Whether a text takes long to parse, and should be parsed in a thread."""
    size = len(data)
    if size >= LARGE or size <= _CHEAP:
        return size >= LARGE
    text = bytes(data)
    return text.count(b"{") + text.count(b"[") > _CONTAINERS


def parse(data: Text, most: int = MOST_VALUES, *, cut: bool = False) -> Any:
    """Parse JSON; of duplicate keys the first counts, NaN and Infinity are numbers.

    `names_of` has the duplicates too. Bytes that are not UTF-8 become surrogates (see `dump`).
    A NUL after the value ends the text.
    Of a large text whose long strings and lists are not needed, they may be `cut`.
    Raises an `InferenceError` for invalid JSON, and `TooManyValuesError` for a large text of more
    than `most` values.
    """
    if data.startswith(_BYTE_ORDER_MARK):
        data = data[len(_BYTE_ORDER_MARK) :]
    value = _sliced(data, most, cut=cut) if is_large(data) else _at_once(data)
    if (at := _lone_surrogate(data)) is not None:
        discard(value)
        raise surrogate_error(at)
    return value


def skim(data: Text, most: int = MOST_VALUES) -> Any:
    """As `parse`, cut."""
    return parse(data, most, cut=True)


def parse_tensors(data: Text, most: int = MOST_VALUES) -> Any:
    """As `parse`; but lists named `data` are of type `NumberList` where all are of numbers."""
    value = decode_with_numbers(data, _first_wins, _is_too_deep_around)
    return parse(data, most) if value is None or _has_infinity(value) else value


def _is_too_deep_around(data: Text) -> bool:
    """Whether text with lists of numbers left out may be nested too deeply with them."""
    return _is_deep(data, MAX_DEPTH - MOST_NESTED)


def _at_once(data: Text) -> Any:
    """Decode a text that is not large."""
    if _is_deep(data):
        raise _too_deep()
    value = decode_in_slices(data, _first_wins) if len(data) >= SLICED else None
    if value is None:
        return _whole(as_text(data))
    if _has_infinity(value) and (overflow := overflow_error(as_text(data))):
        raise overflow
    return value


def _sliced(data: Text, most: int, *, cut: bool) -> Any:
    """Decode a large text in slices."""
    slicer = Slicer(data, _first_wins, most, cut=cut)
    try:
        value = slicer.decode()
    except TooManyValuesError:
        slicer.drop()
        raise
    except TooDeepError:
        error = _too_deep()
    except WrongStringError as wrong:
        error = _wrong_string(data, wrong.at)
    except (ValueError, UnusualError):
        error = _explained(data, slicer)
    else:
        if _has_infinity(value):
            _check_overflow(data, value)
        return value
    slicer.drop()
    raise error


def _check_overflow(data: Text, value: Any) -> None:
    """Raise for the first number beyond the range of a double: `value` has infinite ones."""

    def check(part: Text, at: int) -> None:
        if overflow := overflow_error(as_text(part), at):
            raise overflow

    again = Slicer(data, _first_wins, seen=check, cut=True)
    try:
        discard(again.decode())
    except InferenceError:
        again.drop()
        discard(value)
        raise


def _wrong_string(data: Text, at: int) -> InferenceError:
    """The error in a string that is in order up to `at`."""
    text = as_text(b'"' + data[at : at + _WINDOW])
    try:
        _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        return explain(text, error, at - 1)
    return invalid_value(at)


def _explained(data: Text, slicer: Slicer) -> InferenceError:
    """The error in a text that could not be decoded, found in the window where it is."""
    if slicer.ended:
        before = slicer.at - 1
        return trailing_error(as_text(data[before : before + _MARGIN]), 1, before)
    opening = slicer.opening()
    end = slicer.at + _WINDOW
    part = opening + data[slicer.at : end]
    text = as_text(part)
    try:
        _, behind = _DECODER.raw_decode(text, skip_space(text, 0))
        if not opening:
            return trailing_error(text, skip_space(text, behind), slicer.at)
    except json.JSONDecodeError as error:
        near_end = error.pos >= len(text) - _MARGIN or error.msg.startswith("Unterminated")
        if end >= len(data) or not near_end:
            return explain(text, error, slicer.at - len(opening))
    except (ValueError, RecursionError):
        # An integer with more digits than `int` converts, or what is no value at all.
        return overflow_error(text, slicer.at - len(opening)) or invalid_value(slicer.at)
    return invalid_value(slicer.at)


def _lone_surrogate(data: Text) -> int | None:
    """The offset of a lone surrogate that is written as an escape; `None` without."""
    for start in range(0, len(data), _BLOCK):
        end = start + _BLOCK
        for found in _LONE_SURROGATE.finditer(data, start, end + _PAIR):
            if found.start() < end and not is_escaped(data, found.start()):
                return found.start()
        give_turn()
        for found in _BEHIND_A_BACKSLASH.finditer(data, start, end + _PAIR):
            if is_escaped(data, found.start() + 1):
                return found.start(1)
    return None


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
        if isinstance(value, dict):
            todo += value.values()
        elif kind is list:
            if value and isinstance(value[0], (dict, list)):
                todo += value
            elif _holds_infinity(value):
                return True
        elif kind is float and isinf(value):
            return True
    return False


def _holds_infinity(values: list[Any]) -> bool:
    if len(values) <= _FEW:  # as in lists in lists, of which there may be many
        return inf in values or -inf in values
    return any(inf in part or -inf in part for part in slices(values))


def _too_deep() -> InferenceError:
    return InvalidRequestError(
        "failed to parse the request JSON buffer: JSON nesting depth exceeds maximum allowed limit"
        f" ({MAX_DEPTH})"
    )


def _is_deep(data: Text, most: int = MAX_DEPTH) -> bool:
    """Whether `data` is nested too deeply; cheap if brackets are few or well spread."""
    return _opened(data) > most and _seems_deep(data, most) and depth(data, most) > most


def _opened(data: Text) -> int:
    """The number of opening brackets, those in strings included."""
    blocks = ((at, at + _BLOCK) for at in range(0, len(data), _BLOCK))
    return sum(data.count(b"[", *block) + data.count(b"{", *block) for block in blocks)


def _seems_deep(data: Text, most: int) -> bool:
    """Whether brackets nest too deeply if those in strings are counted too."""
    depth = 0
    codes = np.frombuffer(data, np.uint8)
    for start in range(0, len(codes), _BLOCK):
        give_turn()
        depths = np.cumsum(_STEP[codes[start : start + _BLOCK]], dtype=np.int32) + depth
        if depths.max() > most:
            return True
        depth = int(depths[-1])
    return False
