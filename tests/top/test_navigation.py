"""Keys, and where they lead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.reading.counters import ModelKey
from penstock_client.top.keys import Key, keys
from penstock_client.top.navigation import Navigation, window
from penstock_client.top.view import SORTS

MODELS = [ModelKey(name, "1") for name in "abcdefgh"]


def _press(*pressed: Key, start: Navigation | None = None) -> Navigation:
    now = start or Navigation()
    for key in pressed:
        now = now.press(key, MODELS, rows=3)
    return now


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (b"q", [Key.QUIT]),
        (b"jk", [Key.DOWN, Key.UP]),
        (b"\x1b[A\x1b[B\x1bOA", [Key.UP, Key.DOWN, Key.UP]),
        (b"\x1b", [Key.BACK]),
        (b"\x1b[5~\x1b[6~", [Key.PAGE_UP, Key.PAGE_DOWN]),
        (b"\r", [Key.OPEN]),
        (b"x\x00\xff\x1b[99;5Zs", [Key.SORT]),
        (b"", []),
    ],
)
def test_bytes_are_keys(typed: bytes, found: list[Key]) -> None:
    assert list(keys(typed)) == found


@given(st.binary())
def test_no_bytes_are_too_strange(typed: bytes) -> None:
    assert len(list(keys(typed))) <= len(typed)


def test_selection_moves_and_stops_at_the_ends() -> None:
    assert _press(Key.DOWN, Key.DOWN).selected == MODELS[2]
    assert _press(Key.UP).selected == MODELS[0]
    assert _press(Key.LAST, Key.DOWN).selected == MODELS[-1]
    assert _press(Key.PAGE_DOWN).selected == MODELS[3]
    assert _press(Key.LAST, Key.PAGE_UP).selected == MODELS[4]
    assert _press(Key.LAST, Key.FIRST).selected == MODELS[0]


def test_sort_orders_follow_each_other() -> None:
    seen = [_press(*[Key.SORT] * presses).sort for presses in range(len(SORTS) + 1)]
    assert seen == [*SORTS, SORTS[0]]


def test_details_open_and_close() -> None:
    opened = _press(Key.DOWN, Key.OPEN)
    assert (opened.opened, opened.selected) == (True, MODELS[1])
    assert _press(Key.DOWN, start=opened).selected == MODELS[2]
    assert not _press(Key.BACK, start=opened).opened


def test_q_ends() -> None:
    assert _press(Key.QUIT).ended


def test_a_model_that_is_gone_gives_way_to_the_first() -> None:
    assert Navigation(selected=ModelKey("gone", "1")).position(MODELS) == 0


@given(st.lists(st.sampled_from(Key)), st.integers(0, 3))
def test_the_selection_is_a_model(pressed: list[Key], count: int) -> None:
    models, now = MODELS[:count], Navigation()
    for key in pressed:
        now = now.press(key, models, rows=2)
    assert now.selected is None or now.selected in models
    assert now.position(models) in range(max(count, 1))


@given(st.integers(0, 99), st.integers(1, 100), st.integers(1, 40))
def test_the_selected_row_is_seen(position: int, count: int, rows: int) -> None:
    position = min(position, count - 1)
    seen = window(position, count, rows)
    assert position in seen
    assert len(seen) == min(rows, count)
    assert seen.stop <= count
