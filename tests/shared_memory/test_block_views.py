"""Blocks that are looked at: whoever lets go of one last, it comes back once, and only then."""

from __future__ import annotations

import gc
import mmap
import threading
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.core.buffer import Buffer
from penstock.shared_memory.block_views import Block, BlockView, BlockViews

SIZE = 64


class Memory:
    """Bytes that are their own offsets, views of them, and the blocks that came back."""

    def __init__(self) -> None:
        self.bytes = memoryview(bytearray(range(SIZE)))
        self.ended: list[Block] = []
        self.views = BlockViews(self.ended.append)

    def over(self, offset: int = 16, size: int = 8, *, own: bool = False) -> memoryview:
        """A view of a block that is called as its offset."""
        return self.views.over(self.bytes, offset, offset, size, own=own)

    def seen(self, data: Buffer) -> BlockView:
        view = self.views.find(data)
        assert view is not None
        return view


@pytest.fixture
def memory() -> Memory:
    return Memory()


# -- looking -------------------------------------------------------------------------------------


def test_a_view_is_the_memory_itself(memory: Memory) -> None:
    data = memory.over(16, 8)
    assert list(data) == list(range(16, 24))
    memory.bytes[17] = 99
    data[0] = 98
    assert (data[1], memory.bytes[16]) == (99, 98)


def test_memory_that_may_only_be_read_stays_so(memory: Memory) -> None:
    data = memory.views.over(memory.bytes.toreadonly(), 0, 0, 8)
    assert data.readonly


@pytest.mark.slow
def test_a_view_keeps_its_memory_mapped() -> None:
    mapped = mmap.mmap(-1, mmap.PAGESIZE)
    mapped[:5] = b"still"
    data = BlockViews(lambda _: None).over(memoryview(mapped), 0, 0, 5)
    del mapped
    gc.collect()
    assert bytes(data) == b"still"


# -- the end -------------------------------------------------------------------------------------

LOOKS: Mapping[str, Callable[[memoryview], object]] = {
    "part": lambda data: data[2:4],
    "other type": lambda data: data.cast("I"),
    "every other byte": lambda data: data.toreadonly()[::2],
    "array": lambda data: np.frombuffer(data, np.uint16)[1:],
    "array of another shape": lambda data: np.frombuffer(data, np.uint8).reshape(2, 4).T,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_block_ends_with_whatever_was_made_of_its_view(
    memory: Memory, look: Callable[[memoryview], object]
) -> None:
    data = memory.over()
    seen = look(data)
    del data
    assert memory.ended == []
    del seen
    assert memory.ended == [16]


def test_a_block_that_is_looked_at_twice_ends_twice(memory: Memory) -> None:
    """As it was lent twice."""
    both = [memory.over(), memory.over()]
    both.pop()
    assert memory.ended == [16]
    both.pop()
    assert memory.ended == [16, 16]


def test_a_block_is_named_as_it_was_given(memory: Memory) -> None:
    memory.views.over(memory.bytes, (-7, 4096), 0, 8)
    assert memory.ended == [(-7, 4096)]


def test_a_view_may_end_in_another_thread(memory: Memory) -> None:
    holds = [memory.over()]
    thread = threading.Thread(target=holds.clear)
    thread.start()
    thread.join()
    assert memory.ended == [16]


# -- finding -------------------------------------------------------------------------------------


def test_a_view_is_found_by_any_part_of_it(memory: Memory) -> None:
    data, other = memory.over(16, 8), memory.over(32, 8)
    assert memory.seen(data) is memory.seen(data[3:].cast("B"))
    assert (memory.seen(data[3:]).block, memory.seen(other).block) == (16, 32)


@pytest.mark.parametrize("data", [b"\x10\x11", bytearray(8), memoryview(bytes(8))])
def test_other_bytes_are_no_view(memory: Memory, data: Buffer) -> None:
    kept = memory.over()
    assert memory.views.find(data) is None
    assert memory.seen(kept).block == 16


def test_bytes_of_another_reader_are_no_view(memory: Memory) -> None:
    assert Memory().views.find(memory.over()) is None


def test_a_view_in_memory_of_its_own_is_none_of_the_block(memory: Memory) -> None:
    """It cannot come back with what is in it; the block comes back all the same."""
    data = memory.over(own=True)
    assert memory.views.find(data) is None
    del data
    assert memory.ended == [16]


def test_part_of_a_block_is_not_looked_at(memory: Memory) -> None:
    data = memory.over(16, 8)
    part = memory.seen(data).part(2, 3)
    assert list(part) == [18, 19, 20]
    del data
    assert memory.ended == [16]


# -- coming back with a response -----------------------------------------------------------------


def test_what_a_response_has_claimed_does_not_end(memory: Memory) -> None:
    data = memory.over()
    view = memory.seen(data)
    view.claim()
    del data
    assert view.hold() is None
    assert memory.ended == []


def test_what_somebody_still_looks_at_is_no_more_claimed(memory: Memory) -> None:
    data = memory.over()
    view = memory.seen(data)
    view.claim()
    kept = view.hold()
    assert kept is not None
    del data
    assert memory.ended == []
    del kept
    assert memory.ended == [16]


@pytest.mark.parametrize("looked_at", [False, True])
def test_what_is_given_up_ends_once(memory: Memory, looked_at: bool) -> None:
    data = memory.over()
    view = memory.seen(data)
    view.claim()
    seen = data if looked_at else None
    del data
    view.give_up()
    assert memory.ended == ([] if looked_at else [16])
    del seen
    assert memory.ended == [16]


class Readers(RuleBasedStateMachine):
    """Blocks by the number of who still looks, which the machine counts by itself.

    A response claims a block at most once at a time, and then sends or gives it up, as the
    exchange does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.memory = memoryview(bytearray(SIZE))
        self.ended: list[int] = []
        self.views = BlockViews(self.ended.append)
        self.blocks = count()
        self.looking: dict[int, list[Any]] = {}
        self.claimed: dict[int, BlockView] = {}
        self.back: set[int] = set()

    def _pick(self, choice: int, among: dict[int, Any]) -> int:
        return sorted(among)[choice % len(among)]

    def _left(self, block: int) -> None:
        """Somebody looks no longer; if it was the last, and no response has it, it is back."""
        if not self.looking[block]:
            del self.looking[block]
            if block not in self.claimed:
                self.back.add(block)

    @rule()
    def look(self) -> None:
        block = next(self.blocks)
        self.looking[block] = [self.views.over(self.memory, block, 8, 16)]

    @precondition(lambda self: self.looking)
    @rule(choice=st.integers(0), start=st.integers(0, 15))
    def look_at_a_part(self, choice: int, start: int) -> None:
        seen = self.looking[self._pick(choice, self.looking)]
        seen.append(seen[0][start:])

    @precondition(lambda self: self.looking)
    @rule(choice=st.integers(0), which=st.integers(0))
    def look_no_longer(self, choice: int, which: int) -> None:
        block = self._pick(choice, self.looking)
        seen = self.looking[block]
        del seen[which % len(seen)]
        self._left(block)

    @precondition(lambda self: self.looking.keys() - self.claimed.keys())
    @rule(choice=st.integers(0))
    def claim(self, choice: int) -> None:
        free = {block: seen for block, seen in self.looking.items() if block not in self.claimed}
        block = self._pick(choice, free)
        view = self.views.find(free[block][0])
        assert view is not None
        view.claim()
        self.claimed[block] = view

    @precondition(lambda self: self.claimed)
    @rule(choice=st.integers(0))
    def send(self, choice: int) -> None:
        """The response brings the block back, unless it is looked at and so must be copied."""
        block = self._pick(choice, self.claimed)
        copied = self.claimed.pop(block).hold() is not None
        assert copied == (block in self.looking)

    @precondition(lambda self: self.claimed)
    @rule(choice=st.integers(0))
    def give_up(self, choice: int) -> None:
        block = self._pick(choice, self.claimed)
        self.claimed.pop(block).give_up()
        if block not in self.looking:
            self.back.add(block)

    @invariant()
    def every_block_came_back_once_and_only_when_nobody_looked(self) -> None:
        assert sorted(self.ended) == sorted(self.back)

    @invariant()
    def what_is_looked_at_is_found(self) -> None:
        found = {block: self.views.find(seen[0]) for block, seen in self.looking.items()}
        assert all(view is not None and view.block == block for block, view in found.items())


TestReaders = Readers.TestCase
