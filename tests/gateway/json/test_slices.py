"""The slice decoder gives the same value as a decoder in one piece, or `None`."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.examples import examples
from penstock.core.errors import InternalError
from penstock.gateway.json.slices import decode_in_slices
from penstock.gateway.json.text import LARGE, parse

_MANY = 300_000  # characters, which is more than one slice


def _list(elements: list[str]) -> str:
    return f"[{','.join(elements)}]"


_SPACE = st.text(" \t\r\n", max_size=2)
_VALUE = st.one_of(
    st.sampled_from(["true", "false", "null"]),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    st.text().map(json.dumps),
    st.text('",[]{}:\\').map(json.dumps),
)
_LEAF = st.tuples(_SPACE, _VALUE, _SPACE).map("".join)
_ELEMENT = st.recursive(
    _LEAF,
    lambda inner: st.tuples(_SPACE, st.lists(inner, max_size=3).map(_list), _SPACE).map("".join),
)

_PIECE = st.one_of(
    _ELEMENT,
    st.sampled_from([",", ", ", " ,"]),
    st.sampled_from([*'[]{}:"\\', '"data":[', '{"data": [1]}', '"x\\"data":[', '"\\"data":[']),
    st.sampled_from(["-0", "01", "1.", "1e400", "NaN", "-Infinity", "nan", "0x1", "/**/", "\0"]),
    st.sampled_from(['"\\ud800"', '"\\x"', '"\t"', "\ufeff", "\u00a0", "'a'"]),
)


def _text(data: str) -> str:
    return f'{{"id": "7", "inputs": [{{"name": "A", "data": [{data}], "shape": [1]}}], "b": null}}'


def _many(element: str) -> str:
    return ",".join([element] * (_MANY // (len(element) + 1)))


def _first(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which the first of equal names counts."""
    return dict(reversed(members))


@pytest.mark.slow
@given(st.lists(_ELEMENT, min_size=1, max_size=8), st.lists(_ELEMENT, min_size=1, max_size=3))
@settings(max_examples=examples(50), deadline=None)
def test_slices_decode_as_the_whole(elements: list[str], end: list[str]) -> None:
    text = _text(",".join([_many(",".join(elements)), *end]))
    assert decode_in_slices(text.encode(), dict) == json.loads(text)


@pytest.mark.slow
@given(
    st.lists(_ELEMENT, min_size=1, max_size=4).map(",".join),
    st.lists(st.tuples(st.integers(0, 99), _PIECE), max_size=3),
)
@settings(max_examples=examples(400), deadline=None)
def test_slices_decode_as_the_whole_or_not_at_all(data: str, pieces: list[tuple[int, str]]) -> None:
    """Whatever is put between the words of a list."""
    for place, piece in pieces:
        places = [found.start() for found in re.finditer(r"\b|\s|,|$", data)]
        at = places[place % len(places)]
        data = data[:at] + piece + data[at:]
    said = decode_in_slices(_text(data).encode(), _first)
    assert said is None or repr(said) == repr(json.loads(_text(data), object_pairs_hook=_first))


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
def test_lists_longer_than_a_slice_are_decoded_within_others(depth: int) -> None:
    row = "[" * depth + _many('1, "[\\"]"') + "]" * depth
    text = _text(f" {row} , [7], {row}")
    assert decode_in_slices(text.encode(), dict) == json.loads(text)


def test_every_list_of_data_has_its_place() -> None:
    first, second = _many("1"), _many('"\\"data\\": [1]"')
    text = f'[{{"data": [{first}]}}, "data", {{"data" : [{second}], "data": [2]}}, {{"data": 3}}]'
    assert decode_in_slices(text.encode(), lambda members: members) == json.loads(
        text, object_pairs_hook=lambda members: members
    )


@pytest.mark.parametrize(
    "data",
    [
        *(
            f"{_many('1')}{end}"
            for end in (",", ", ", ",,2", ", ,2", " 2", "]", ",x", ',"', ",[2", ",[2,]", ",{]")
        ),
        f",{_many('1')}",
        f" ,{_many('1')}",
        *(f"[{_many('1')}]{end}" for end in (",", ", ", " 2", "[1]", "]", ',"x')),
        f"[{_many('1')}",
        "1" * _MANY,
        "",
    ],
)
def test_invalid_or_unusual_text_is_not_decoded(data: str) -> None:
    assert decode_in_slices(_text(data).encode(), dict) is None


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (",]", "Invalid value."),
        (" 2]", "Missing a comma or ']' after an array element."),
        (",1e999]", "Number too big to be stored in double."),
    ],
)
def test_errors_in_large_text_have_an_offset(end: str, reason: str) -> None:
    start = '{"inputs": [{"data": [' + ",".join(["1.5"] * (LARGE // 4))
    at = len(start) + 1
    with pytest.raises(InternalError, match=f"{reason} at {at}$"):
        parse(f"{start}{end}}}]}}".encode())


@pytest.mark.parametrize("element", ["1.5", "7", '"\\u00e9\\\\"', "[1]", "NaN", "Infinity"])
def test_large_text_is_read_like_any_other(element: str) -> None:
    text = '{"a": 1, "data": [' + ",".join([element] * (LARGE // 2)) + '], "a": 2}'
    values = json.loads(f"[{element}]") * (LARGE // 2)
    assert repr(parse(text.encode())) == repr({"a": 1, "data": values})


@pytest.mark.parametrize(
    "elements",
    ["18446744073709551616", "[0.5, -9223372036854775809]", '"0.5", 0.5, 18446744073709551617'],
)
def test_integers_of_more_than_64_bits_are_exact(elements: str) -> None:
    text = _text(_many(elements))
    assert repr(decode_in_slices(text.encode(), dict)) == repr(json.loads(text))
