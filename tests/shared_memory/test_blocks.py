"""Blocks of an arena: apart while they are used, and used again when they are free."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.shared_memory.blocks import BlockAllocator

MIB = 1 << 20


class Discarded:
    """Blocks, and which of them the system was given back."""

    def __init__(self, size: int) -> None:
        self.discarded: list[int] = []
        self.blocks = BlockAllocator(size, lambda offset, _: self.discarded.append(offset))

    def take(self, size: int) -> int:
        offset = self.blocks.take(size)
        assert offset is not None
        return offset


def test_the_block_that_was_freed_last_is_used_first() -> None:
    blocks = Discarded(64 * MIB)
    offsets = [blocks.take(MIB) for _ in range(3)]
    for offset in offsets:
        blocks.blocks.free(offset)
    assert [blocks.take(MIB) for _ in range(3)] == offsets[::-1]
    assert blocks.discarded == []


def test_blocks_fill_the_room_to_its_end() -> None:
    blocks = Discarded(2 * MIB)
    assert [blocks.blocks.take(MIB) for _ in range(3)] == [0, MIB, None]


def test_block_of_more_than_a_power_of_two_is_of_the_next() -> None:
    blocks = Discarded(4 * MIB)
    assert [blocks.blocks.take(size) for size in (MIB + 1, MIB, MIB)] == [0, 2 * MIB, 3 * MIB]


def test_block_of_64_mib_is_kept_warm() -> None:
    blocks = Discarded(64 * MIB)
    blocks.blocks.free(blocks.take(64 * MIB))
    assert (blocks.discarded, blocks.blocks.kept) == ([], 64 * MIB)


def test_large_block_is_given_back_to_the_system() -> None:
    blocks = Discarded(1024 * MIB)
    offset = blocks.take(65 * MIB)
    blocks.blocks.free(offset)
    assert blocks.discarded == [offset]


def test_large_blocks_that_are_free_serve_small_needs_when_nothing_else_is_left() -> None:
    blocks = Discarded(128 * MIB)
    large = [blocks.take(64 * MIB) for _ in range(2)]
    assert blocks.blocks.take(1) is None
    blocks.blocks.free(large[1])
    assert blocks.take(1) == large[1]
    assert blocks.blocks.take(1) is None
    blocks.blocks.free(large[1])
    assert blocks.take(64 * MIB) == large[1]


def test_what_is_free_and_kept_is_bounded_in_all() -> None:
    blocks = Discarded(4096 * MIB)
    offsets = [blocks.take(64 * MIB) for _ in range(10)]
    for offset in offsets:
        blocks.blocks.free(offset)
    assert blocks.discarded == offsets[4:]
    assert blocks.take(64 * MIB) == offsets[3]  # one that is warm


def test_a_block_may_become_free_while_others_are_sorted() -> None:
    """As the collector of garbage may find its last view at any moment."""
    blocks = BlockAllocator(1024 * MIB, lambda _, __: blocks.free(0))
    small, large = blocks.take(1), blocks.take(65 * MIB)
    assert small == 0
    assert large is not None
    blocks.free(large)
    assert blocks.used == 0
    assert (blocks.take(1), blocks.take(65 * MIB)) == (small, large)


@given(st.lists(st.integers(-3, 300_000), max_size=60))
def test_blocks_in_use_never_overlap(actions: list[int]) -> None:
    """A positive number is a size to take, another one frees the oldest block."""
    blocks, used = BlockAllocator(4 * MIB, lambda _, __: None), dict[int, int]()
    for action in actions:
        if action > 0:
            offset = blocks.take(action)
            if offset is not None:
                used[offset] = action
        elif used:
            oldest = next(iter(used))
            del used[oldest]
            blocks.free(oldest)
    ends = [(offset, offset + size) for offset, size in sorted(used.items())]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))
    assert blocks.used == len(used)
