"""Lists of numbers become the same tensors, and the same errors, as they do element by element."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.examples import examples
from penstock.core.errors import InferenceError
from penstock.core.tensor import DataType
from penstock.gateway.json.number_lists import NumberList
from penstock.gateway.json.scan import Text
from penstock.gateway.json.tensors import tensor_from_json
from penstock.gateway.json.text import LARGE, parse, parse_tensors

_MANY = 300_000  # characters, which is more than one slice

_DATATYPES = [
    each for each in DataType if each.itemsize and each not in (DataType.FP16, DataType.BF16)
]

_INTEGERS = st.one_of(
    st.integers(-300, 300),
    st.integers(-(1 << 64), 1 << 65),
    st.sampled_from(
        [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 2**53 + 1, 10**400]
    ),
)
_FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        ["-0.0", "-0", "0e0", "1E5", "1e-400", "1e400", "2.5e+3", "1.0000000000000000001"]
    ),
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,3})?", fullmatch=True),
)
_OTHERS = st.sampled_from(
    [
        "true",
        "false",
        "null",
        "NaN",
        "-Infinity",
        '"1"',
        '"]"',
        "[]",
        "{}",
        "01",
        "1.",
        "+1",
        ".5",
        "1_0",
        "",
    ]
)
_SPACE = st.sampled_from(["", "", "", " ", "\n", "\t\r"])
_ROWS = st.one_of(
    st.lists(_INTEGERS.map(str), min_size=1, max_size=6),
    st.lists(_FLOATS, min_size=1, max_size=6),
    st.lists(_INTEGERS.map(str) | _FLOATS, min_size=1, max_size=6),
    st.lists(_INTEGERS.map(str) | _FLOATS | _OTHERS, max_size=6),
)


def _list(elements: list[str], space: str = "") -> str:
    return f"[{space}{f'{space},{space}'.join(elements)}{space}]"


_LISTS = st.recursive(
    st.builds(_list, _ROWS, _SPACE),
    lambda inner: st.builds(_list, st.lists(inner, min_size=1, max_size=4), _SPACE),
    max_leaves=6,
)


_SPACES = " " * 512  # a text that is shorter is decoded in another way


def _text(data: str) -> bytes:
    inputs = f'[{{"name": "A", "data":{data}, "shape": [1]}}]'
    return f'{{"id": "7", "inputs": {inputs}}}{_SPACES}'.encode()


def _read(text: Text, datatype: DataType, count: int, *, numbers: bool) -> Any:
    """The bytes of the tensor, or the error."""
    try:
        data = (parse_tensors if numbers else parse)(text)["inputs"][0]["data"]
        assert isinstance(data, list | NumberList)
        return bytes(tensor_from_json("A", datatype, [count], data, count).buffer)
    except InferenceError as error:
        return type(error), str(error)


@given(_LISTS, st.sampled_from(_DATATYPES), st.integers(1, 8))
@settings(max_examples=examples(500), deadline=None)
@pytest.mark.slow
def test_tensors_and_errors_are_those_of_single_elements(
    data: str, datatype: DataType, count: int
) -> None:
    text = _text(data)
    assert _read(text, datatype, count, numbers=True) == _read(text, datatype, count, numbers=False)


_ENDS = ["1", "-1", "0.5", "1e2", "18446744073709551615", "true", '"x"', "", "[2]", "1e999"]


@pytest.mark.parametrize(
    ("element", "end"),
    # Each end behind one kind of element, and each kind of element before what fits and what not.
    [*product(["1"], _ENDS), *product(["-7", "0.5", "9223372036854775808"], ["1", '"x"'])],
)
@pytest.mark.parametrize(
    "datatype", [DataType.FP32, DataType.INT64, DataType.UINT8, DataType.BYTES]
)
@pytest.mark.slow
def test_lists_of_many_slices_are_read_as_short_ones(
    element: str, end: str, datatype: DataType
) -> None:
    count = _MANY // (len(element) + 1)
    text = _text(_list([*[element] * count, end]))
    for size in (count, count + 1):
        assert _read(text, datatype, size, numbers=True) == _read(
            text, datatype, size, numbers=False
        )


@pytest.mark.parametrize(
    "data",
    [
        "[1, 2]",
        "[ 1.5,2e3 ]",
        "[[1, 2], [3, 4]]",
        "[[[1], [2]], [[3]]]",
        _list(["0.25"] * _MANY),
        _list(["[1,2]"] * (_MANY // 4)),
    ],
)
def test_lists_of_numbers_are_decoded_into_arrays(data: str) -> None:
    """Of whatever size, nested or not."""
    assert isinstance(parse_tensors(_text(data))["inputs"][0]["data"], NumberList)


@pytest.mark.parametrize(
    "text",
    [
        b'{"data":[1],"data":[2]}',
        b'{"data":[1],"data":"x","id":"\\"data\\":[3]"}',
        b'[{"data":[1]},{"data":["x"]}]',
        b'[{"data":[1]}]\0\1\2',
        b'\xef\xbb\xbf{"data":[1]}',
        b'{"data":[1],"id":"\\ud83d\\ude00\xff"}',
        b'{"data":[1],"id":NaN,"x":[Infinity]}',
        b'{"d\\u0061ta":[1]}',
        b'{"data":[1]',
        b'{"data":[1],}',
        b'{"data":[1],"x":1e999}',
        b'{"data":[1],"x":"\\ud800"}',
        b'{"data":[1]} x',
        b"[" * 99 + b'{"data":[1]}' + b"]" * 99,
        b"[" * 98 + b'{"data":[1]}' + b"]" * 98,
        b'{"data":[1],"x":"' + b"[" * 200 + b'"}',
        b'{"data":' + b"[" * 30 + b"1" + b"]" * 30 + b"}",
        b'{"data":' + b"[" * 150 + b"1" + b"]" * 150 + b"}",
        b'{"data":[1],"x":"' + b"x" * LARGE + b'"}',
        b"[" + b",".join([b'{"data":[1]}'] * 100) + b"]",
    ],
)
def test_text_around_lists_is_read_as_ever(text: bytes) -> None:
    """The first of equal names counts, and errors keep their texts and places."""
    text += _SPACES.encode()
    assert _plain(text, parse_tensors) == _plain(text, parse)


def _plain(text: bytes, parsing: Any) -> Any:
    try:
        return json.dumps(parsing(text), default=lambda numbers: numbers.array.tolist())
    except InferenceError as error:
        return type(error), str(error)


def test_what_stands_for_a_list_is_nothing_that_clients_can_write() -> None:
    """Each list has its own place, whatever strings there are."""
    text = b'[{"data":[1,2]},"0","1",{"data":[3.5]},{"data":"0"}]'
    text += _SPACES.encode()
    first, zero, one, second, other = parse_tensors(text)
    assert (first["data"].array.tolist(), second["data"].array.tolist()) == ([1, 2], [3.5])
    assert (zero, one, other) == ("0", "1", {"data": "0"})
