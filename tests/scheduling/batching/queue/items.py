"""Requests that wait to be batched, and queues of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hypothesis import strategies as st

from penstock.scheduling.batching.batch_queue import BatchPolicy, BatchQueue, Entry


@dataclass(eq=False)
class Item:
    """A request: how many rows it has, and what it can be batched with."""

    rows: int = 1
    signature: str = "a"
    abandoned: bool = False
    number: int = field(default_factory=count().__next__)
    entry: Entry[Item] | None = None


def queue_of(policy: BatchPolicy, items: list[Item], now: float = 0.0) -> BatchQueue[Item]:
    queue = BatchQueue[Item](policy)
    for item in items:
        item.entry = queue.push(item, item.rows, item.signature, now)
    for item in items:
        if item.abandoned:
            leave(queue, item)
    return queue


def leave(queue: BatchQueue[Item], item: Item) -> None:
    assert item.entry is not None
    queue.leave(item.entry)


def rows_of(batch: list[Item]) -> int:
    return sum(item.rows for item in batch)


def items_of(*rows: int) -> list[Item]:
    return [Item(n) for n in rows]


def emptied(queue: BatchQueue[Item], now: float = 0.0) -> list[list[Item]]:
    """Every batch until nothing waits."""
    batches = []
    while batch := queue.pop(now):
        batches.append(batch)
    return batches


@st.composite
def policies(draw: st.DrawFn) -> BatchPolicy:
    largest = draw(st.integers(1, 8))
    preferred = draw(st.frozensets(st.integers(1, largest), max_size=3))
    return BatchPolicy(largest, preferred, draw(st.sampled_from([0.0, 5.0])))


ROWS = st.sampled_from([1, 1, 1, 2, 2, 3, 4, 9])
SIGNATURES = st.sampled_from("aaab")
ITEMS = st.lists(st.builds(Item, ROWS, SIGNATURES, st.sampled_from([False, False, True])))
WANTED = st.lists(st.builds(Item, ROWS, SIGNATURES))
NOW = st.sampled_from([0.0, 1.0, 99.0])
