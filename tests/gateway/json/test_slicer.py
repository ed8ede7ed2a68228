"""The decoder of large texts: as the decoder of the whole, with no step that is long."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.examples import examples
from penstock.core.errors import InferenceError
from penstock.gateway.json import slices, text
from penstock.gateway.json.long_lists import discard
from penstock.gateway.json.slices import TooManyValuesError
from penstock.gateway.json.text import parse

_LARGE = 400


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Slices of 64 bytes, for texts of 400 bytes on; the sizes of the parts that were decoded."""
    sizes = list[int]()
    loads = json.loads

    def spy(part: str, **options: Any) -> Any:
        sizes.append(len(part))
        return loads(part, **options)

    monkeypatch.setattr(slices, "SLICE", 64)
    monkeypatch.setattr(text, "LARGE", _LARGE)
    monkeypatch.setattr(json, "loads", spy)
    monkeypatch.setattr(json.JSONDecoder, "decode", _counting(json.JSONDecoder.decode, sizes))
    return sizes


def _counting(decode: Any, sizes: list[int]) -> Any:
    def run(self: Any, part: str, *more: Any) -> Any:
        sizes.append(len(part))
        return decode(self, part, *more)

    return run


def _whole(value: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(text, "LARGE", 1 << 60)
        patch.setattr(text, "SLICED", 1 << 60)
        return _outcome(value)


def _outcome(value: str) -> Any:
    try:
        return repr(parse(value.encode()))
    except InferenceError as error:
        return type(error), str(error)


_TEXTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=90),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=60,
).map(lambda value: json.dumps({"first": [value] * 3, "data": value, "pad": "x" * _LARGE}))

_MANY = settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@given(_TEXTS)
@_MANY
@pytest.mark.slow
def test_slices_decode_to_the_value_of_the_whole_text(value: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert _outcome(value) == _whole(value, patch)


@given(
    _TEXTS, st.integers(0, 1 << 20), st.sampled_from(["", ",", "]", "}", "{", '"', "x", "1.", "\\"])
)
@_MANY
@pytest.mark.slow
def test_errors_in_slices_are_those_of_the_whole_text(value: str, place: int, piece: str) -> None:
    at = place % len(value)
    broken = value[:at] + piece + value[at + 1 :]
    with pytest.MonkeyPatch.context() as patch:
        assert _outcome(broken) == _whole(broken, patch)


_CHARACTERS = st.sampled_from(
    [
        r"\\",
        r"\ud83d\ude00",
        r"\u6f22",
        r"\n",
        r"\"",
        r"\ud83d",
        r"\ude00",
        "漢",
        "😀",
        "é",
        "x" * 50,
    ]
)


@pytest.mark.slow
@given(st.lists(_CHARACTERS, min_size=1, max_size=60), st.sampled_from(["", "\\", r"\u12", r"\q"]))
@_MANY
def test_a_long_string_is_cut_between_characters(parts: list[str], end: str) -> None:
    value = f'{{"pad": "{"x" * _LARGE}", "text": ["{"".join(parts)}{end}"], "{"".join(parts)}": 1}}'
    with pytest.MonkeyPatch.context() as patch:
        assert _outcome(value) == _whole(value, patch)


@pytest.mark.parametrize(
    "value",
    [
        "[%s1,%s2 %s]",
        '{%s"a"%s:%s1%s,%s"b":[%s]%s}',
        "[%s]",
        "{%s}",
        "%s17%s",
        "[%s1e999]",
        "[%s-Infinity,%sNaN]",
        "[1%s2]",
        "{%s1:2}",
        '{"a"%s1}',
        "[%s",
        "%s",
        "[1]%s\0%s}",
        "[1]%s2",
        "[" + "1" * 5000 + "%s]",
    ],
)
def test_white_space_may_be_longer_than_a_slice(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = value.replace("%s", " \n" * _LARGE)
    assert _outcome(text) == _whole(text, monkeypatch)


@pytest.mark.parametrize("nested", [100, 101, 5000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_the_limit_of_depth_holds_in_slices(
    nested: int, opening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = "]" if opening == "[" else "}"
    text = f"{opening * nested}{' ' * _LARGE}1{closing * nested}"
    assert _outcome(text) == _whole(text, monkeypatch)


def _refused(value: str, most: int) -> bool:
    try:
        parse(value.encode(), most)
    except TooManyValuesError:
        return True
    return False


_PAD = f'"{"x" * _LARGE}"'


@pytest.mark.parametrize(
    ("unit", "count"),
    [
        ('"x"', 100),
        ("[1,2]", 400),
        ("{}", 12),
        ('{"a":1}', 11),
        (f"[{_PAD}]", 11),  # opened by itself
    ],
)
def test_values_are_counted_by_what_they_cost(unit: str, count: int) -> None:
    """The list around them counts as an object, and what fills the text as a string."""
    most = 100 + 8 + 1
    assert not _refused(f"[{_PAD},{','.join([unit] * count)}]", most)
    assert _refused(f"[{_PAD},{','.join([unit] * (count + count // 8 + 1))}]", most)


def test_numbers_and_literals_count_nothing() -> None:
    assert not _refused(json.dumps([1, 2.5, None, True] * 1000), 8)


def test_names_count_as_strings() -> None:
    members = ",".join(f'"n{n}":1' for n in range(200))
    assert _refused(f"{{{members}}}", 100)
    assert not _refused(f"{{{members}}}", 600)


def test_brackets_in_strings_are_no_objects() -> None:
    assert not _refused(json.dumps([json.dumps({"a": {}, "b": [1]})] * 50), 100)


@pytest.mark.parametrize("piece", ["e+16", ".5", "5"])
def test_what_follows_a_list_is_no_part_of_a_number(
    piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps({"first": [[2.5, "x" * 80]], "pad": "x" * _LARGE})
    broken = text.replace("[2.5", f"[2.5]{piece}")
    assert "Missing a comma or ']' after an array element. at 16" in _outcome(broken)[1]
    assert _outcome(broken) == _whole(broken, monkeypatch)


@pytest.mark.parametrize(
    "value",
    [
        {f"key{n}": n for n in range(1000)},
        {"deep": {"deeper": {f"key{n}": [n, {"x": n}] for n in range(300)}}},
        [{"a": n, "b": [n]} for n in range(300)],
        [[[n] * 30 for n in range(30)], {"x": list(range(100))}],
        {"text": "x" * 5000, "more": ["y" * 1000, 1]},
        {"inputs": [{"name": "IN", "data": list(range(1000))}]},
    ],
)
def test_no_part_is_longer_than_a_slice(value: Any, tiny: list[int]) -> None:
    assert parse(json.dumps(value).encode()) == value
    assert max(tiny) <= 64 + 2


def test_first_of_equal_names_counts_across_slices() -> None:
    members = ",".join(f'"a": {n}, "b{n}": {n}' for n in range(100))
    assert parse(f"{{{members}}}".encode())["a"] == 0


def test_discard_empties_lists_and_objects_at_every_depth() -> None:
    rows = [{"x": list(range(1000))} for _ in range(3)]
    kept = [row["x"] for row in rows]
    value = {"rows": rows, "members": {str(n): n for n in range(1000)}}
    discard(value)
    assert value == {}
    assert rows == []
    assert kept[0] == []
