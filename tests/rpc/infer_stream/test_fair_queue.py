"""Keys take turns; the items of one key stay in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.rpc.stream_writer import FairQueue


def drained(queue: FairQueue[tuple[str, int]]) -> list[tuple[str, int]]:
    items = []
    while queue:
        items.append(queue.pop())
    return items


def test_keys_take_turns() -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for item in [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)]:
        queue.push(item[0], item)
    assert drained(queue) == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3)]


def test_key_that_had_its_turn_waits_for_the_others() -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for item in [("a", 1), ("a", 2), ("b", 1)]:
        queue.push(item[0], item)
    queue.pop()
    queue.push("c", ("c", 1))
    assert drained(queue) == [("b", 1), ("a", 2), ("c", 1)]


@given(st.lists(st.sampled_from("abc")))
def test_every_item_comes_once_and_in_the_order_of_its_key(keys: list[str]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    items = [(key, number) for number, key in enumerate(keys)]
    for key, number in items:
        queue.push(key, (key, number))
    out = drained(queue)
    assert sorted(out) == sorted(items)
    assert [[i for i in out if i[0] == key] for key in "abc"] == [
        [i for i in items if i[0] == key] for key in "abc"
    ]
