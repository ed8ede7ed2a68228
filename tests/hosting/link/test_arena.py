"""Shared memory: what is written is read, and every block becomes free again."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.hosting.link.arena import Arena, ArenaView, create


class Shared:
    """Both sides of an arena; freed blocks go back at once."""

    def __init__(self, size: int) -> None:
        descriptor = create(size)
        self.freed: list[int] = []
        self.arena = Arena(descriptor)
        self.view = ArenaView(descriptor, self._free)
        os.close(descriptor)

    def put(self, data: bytes) -> int:
        offset = self.arena.put(data)
        assert offset is not None
        return offset

    def _free(self, offset: int) -> None:
        self.freed.append(offset)
        self.arena.free(offset)


@pytest.fixture
def shared() -> Shared:
    return Shared(1 << 30)


def test_reader_sees_what_was_written(shared: Shared) -> None:
    first, second = shared.put(b"first"), shared.put(b"second")
    assert bytes(shared.view.view(first, 5)) == b"first"
    assert bytes(shared.view.view(second, 6)) == b"second"


def test_reader_sees_which_batch_was_begun_last_whatever_else_is_written() -> None:
    shared = Shared(1 << 20)
    assert shared.view.begun == 0
    shared.arena.begin((1 << 40) + 3)
    shared.put(b"x" * (1 << 20))
    assert shared.view.begun == (1 << 40) + 3


def test_block_is_free_when_its_last_view_is_gone(shared: Shared) -> None:
    view = shared.view.view(shared.put(bytes(1 << 20)), 1 << 20)
    array = np.frombuffer(view, np.float32)[1000:2000].reshape(10, 100)
    del view
    assert shared.freed == []
    del array
    assert len(shared.freed) == 1
    assert shared.arena.used == 0


def test_freed_block_is_used_again_first(shared: Shared) -> None:
    offsets = [shared.put(bytes(100_000)) for _ in range(3)]
    shared.arena.free(offsets[1])
    assert shared.put(bytes(90_000)) == offsets[1]


def test_full_arena_takes_no_more_until_something_is_free() -> None:
    shared = Shared(1 << 20)
    offset = shared.put(bytes(1 << 20))
    assert shared.arena.put(b"x") is None
    shared.arena.free(offset)
    assert shared.arena.put(bytes(1 << 20)) == offset


def test_view_outlives_the_writer() -> None:
    shared = Shared(1 << 20)
    view = shared.view.view(shared.put(b"still here"), 10)
    del shared
    assert bytes(view) == b"still here"


def test_large_free_block_gives_its_memory_back(shared: Shared) -> None:
    offset = shared.put(b"\1" * (128 << 20))
    shared.arena.free(offset)
    assert shared.put(b"\2" * ((64 << 20) + 1)) == offset
    assert bytes(shared.view.view(offset, 128 << 20)[-4:]) == bytes(4)


@given(st.lists(st.integers(-3, 200_000), max_size=40))
def test_blocks_in_use_never_overlap(actions: list[int]) -> None:
    """A positive number is a size to write, another one frees the oldest block."""
    shared, used = Shared(64 << 20), dict[int, bytes]()
    for number, action in enumerate(actions):
        if action > 0:
            data = bytes([number]) * action
            used[shared.put(data)] = data
        elif used:
            oldest = next(iter(used))
            del used[oldest]
            shared.arena.free(oldest)
    for offset, data in used.items():
        assert bytes(shared.view.view(offset, len(data))) == data
