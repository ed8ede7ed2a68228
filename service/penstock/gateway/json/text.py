"""JSON parser and writer: as lenient as Triton's, with a limit on the depth of nesting."""

from __future__ import annotations

import json
from contextlib import suppress
from math import inf, isinf
from typing import Any

import orjson

from penstock.core.buffer import Buffer
from penstock.core.errors import InferenceError, InvalidRequestError
from penstock.gateway.json.errors import (
    explain,
    number_too_big,
    overflow_error,
    skip_space,
    surrogate_error,
    trailing_error,
)
from penstock.gateway.json.members import RepeatedMembers
from penstock.gateway.json.number_lists import MOST_NESTED, decode_with_numbers
from penstock.gateway.json.scan import (
    MAX_DEPTH,
    MOST_VALUES,
    Pairs,
    Text,
    ValueCount,
    as_text,
    is_deep,
    lone_surrogate,
)

LARGE = 1 << 19
"""Texts of at least so many bytes are large, see `is_large`: less takes some milliseconds."""

_CHEAP = 1 << 14
_CONTAINERS = 1 << 12
"""Braces and brackets that a text of more bytes may have without being large.

An object takes a microsecond, and a list in lists about as much.
"""

_COMMAS = 1 << 15
"""The same of commas: numbers and strings take some hundreds of nanoseconds."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def _first_wins(pairs: Pairs) -> dict[str, Any]:
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
    """Whether a text takes long to parse, and should be parsed in a process of its own."""
    size = len(data)
    if size >= LARGE or size <= _CHEAP:
        return size >= LARGE
    text = bytes(data)
    return text.count(b"{") + text.count(b"[") > _CONTAINERS or text.count(b",") > _COMMAS


def parse(data: Text, most: int = MOST_VALUES) -> Any:
    """Parse JSON; of duplicate keys the first counts, NaN and Infinity are numbers.

    `names_of` has the duplicates too. Bytes that are not UTF-8 become surrogates (see `dump`).
    A NUL after the value ends the text.
    Raises an `InferenceError` for invalid JSON, and `TooManyValuesError` for a large text of more
    than `most` values.
    """
    if data.startswith(_BYTE_ORDER_MARK):
        data = data[len(_BYTE_ORDER_MARK) :]
    if is_deep(data):
        raise _too_deep()
    value = _whole(as_text(data), _counting(data, most) if is_large(data) else _DECODER)
    if (at := lone_surrogate(data)) is not None:
        raise surrogate_error(at)
    return value


def parse_tensors(data: Text, most: int = MOST_VALUES) -> Any:
    """As `parse`; but lists named `data` are of type `NumberList` where all are of numbers."""
    value = decode_with_numbers(data, _first_wins, _is_too_deep_around)
    return parse(data, most) if value is None or _has_infinity(value) else value


def _is_too_deep_around(data: Text) -> bool:
    """Whether text with lists of numbers left out may be nested too deeply with them."""
    return is_deep(data, MAX_DEPTH - MOST_NESTED)


def _counting(data: Text, most: int) -> json.JSONDecoder:
    """A decoder that takes so many values of this text."""
    count = ValueCount(data, most)

    def as_object(pairs: Pairs) -> dict[str, Any]:
        count.object()
        return _first_wins(pairs)

    return json.JSONDecoder(object_pairs_hook=as_object)


def _whole(text: str, decoder: json.JSONDecoder) -> Any:
    """Decode the text; raises the error that describes it."""
    value, end = _decode(text, decoder)
    if _has_infinity(value) and (overflow := overflow_error(text[:end])):
        raise overflow
    end = skip_space(text, end)
    if end < len(text) and text[end] != "\0":
        raise trailing_error(text, end)
    return value


def _decode(text: str, decoder: json.JSONDecoder) -> tuple[Any, int]:
    try:
        return decoder.raw_decode(text, skip_space(text, 0))
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
            elif inf in value or -inf in value:
                return True
        elif kind is float and isinf(value):
            return True
    return False


def _too_deep() -> InferenceError:
    return InvalidRequestError(
        "failed to parse the request JSON buffer: JSON nesting depth exceeds maximum allowed limit"
        f" ({MAX_DEPTH})"
    )
