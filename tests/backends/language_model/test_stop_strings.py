"""Stop strings end a text at the same place however it is cut into pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock_backends.language_model import StopStrings, stops_complaint

texts = st.text(alphabet="abc", max_size=24)
stops = st.lists(st.text(alphabet="abc", min_size=1, max_size=5), min_size=1, max_size=4)


def shown(matcher: StopStrings, pieces: list[str]) -> str:
    return "".join([*(matcher.feed(piece) for piece in pieces), matcher.flush()])


def first_end(text: str, stops: list[str]) -> tuple[int, str] | None:
    """By definition: the first place where a stop string has just ended, the longest of them."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return end, max(ending, key=len)
    return None


@given(texts, stops, st.booleans())
@example("aabc", ["c", "abc"], False)
def test_text_is_cut_where_a_stop_string_first_ends(
    text: str, stops: list[str], keep: bool
) -> None:
    found = first_end(text, stops)
    end, stop = found if found is not None else (len(text), "")
    expected = text[: end if keep else end - len(stop)]
    assert shown(StopStrings(stops, keep=keep), [text]) == expected


@given(texts, stops, st.lists(st.integers(0, 24)))
@example("abbcc", ["aa", "bbcc"], [3])
def test_cutting_into_pieces_changes_nothing(text: str, stops: list[str], cuts: list[int]) -> None:
    pieces = [text[a:b] for a, b in pairwise([0, *sorted(cuts), len(text)])]
    assert shown(StopStrings(stops), pieces) == shown(StopStrings(stops), [text])


def test_the_longest_beginning_is_held_back_until_it_is_none() -> None:
    matcher = StopStrings(["\n\nUser:"])
    assert [matcher.feed(piece) for piece in ("Hi", "\n", "\nUs", "ing")] == [
        "Hi",
        "",
        "",
        "\n\nUsing",
    ]


def test_a_stop_string_across_pieces_is_cut_out() -> None:
    matcher = StopStrings(["STOP"])
    assert [matcher.feed(piece) for piece in ("one S", "TO", "P two")] == ["one ", "", ""]
    assert matcher.found == "STOP"


def test_it_can_be_kept() -> None:
    matcher = StopStrings(["STOP"], keep=True)
    assert shown(matcher, ["one S", "TO", "P two"]) == "one STOP"


def test_nothing_comes_after_it() -> None:
    matcher = StopStrings(["x"])
    matcher.feed("ax")
    assert (matcher.feed("b"), matcher.flush()) == ("", "")


@pytest.mark.parametrize("last", ["b", "bc"])
def test_one_that_ends_before_the_minimum_does_not_count(last: str) -> None:
    matcher = StopStrings(["ab"])
    assert matcher.feed("ab", armed=False) == "ab"
    assert matcher.feed(last) == last
    assert matcher.found is None


def test_one_that_ends_after_the_minimum_may_begin_before_it() -> None:
    matcher = StopStrings(["ab"])
    assert (matcher.feed("xa", armed=False), matcher.feed("b")) == ("x", "")
    assert matcher.found == "ab"


def test_the_end_outputs_the_buffered_text() -> None:
    matcher = StopStrings(["abc"])
    assert (matcher.feed("xab"), matcher.flush()) == ("x", "ab")


@pytest.mark.parametrize(
    ("stops", "complaint"),
    [
        (["a"] * 256, ""),
        (["a"] * 257, "must hold at most 256 strings, not 257"),
        (["a" * (1 << 13)] * 2, ""),
        (["a" * (1 << 13), "a" * (1 << 13), "a"], "must have at most 16384 characters"),
    ],
)
def test_stop_strings_are_bounded(stops: list[str], complaint: str) -> None:
    found = stops_complaint(stops)
    assert found.startswith(complaint)
    assert bool(found) is bool(complaint)
