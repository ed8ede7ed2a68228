"""The decoder of large texts: as the decoder of the whole, with no step that is long."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.errors import InferenceError
from penstock.gateway.json import slices, text
from penstock.gateway.json.slices import discard
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

    monkeypatch.setattr(slices, "_SLICE", 64)
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
        patch.setattr(text, "_SLICED", 1 << 60)
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
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(_TEXTS)
@_MANY
def test_slices_decode_to_the_value_of_the_whole_text(value: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert _outcome(value) == _whole(value, patch)


@given(
    _TEXTS, st.integers(0, 1 << 20), st.sampled_from(["", ",", "]", "}", "{", '"', "x", "1.", "\\"])
)
@_MANY
def test_errors_in_slices_are_those_of_the_whole_text(value: str, place: int, piece: str) -> None:
    at = place % len(value)
    broken = value[:at] + piece + value[at + 1 :]
    with pytest.MonkeyPatch.context() as patch:
        assert _outcome(broken) == _whole(broken, patch)


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
    assert len(kept[0]) == 1000  # within a small object: freed with it
