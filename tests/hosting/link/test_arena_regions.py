"""Memory of a model process as regions: what it has written, and what it has mapped."""

from __future__ import annotations

import gc
import mmap
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.region import SharedFile
from penstock.hosting.link.arena_regions import ArenaRegion, BorrowedRegion

PAGE = mmap.ALLOCATIONGRANULARITY
SIZE = 4 * PAGE
PATTERN = bytes(n % 251 for n in range(SIZE))


class File:
    """Shared memory of another process: 4 pages, of which every byte tells where it is."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("other")
        os.write(self.descriptor, PATTERN)

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.descriptor, size, offset)

    def write(self, offset: int, data: bytes) -> None:
        os.pwrite(self.descriptor, data, offset)

    def borrowed(self, offset: int = 0, size: int = SIZE, **options: Any) -> BorrowedRegion:
        """The region as the model process maps it; the descriptor stays the file's."""
        arguments = {"exclusive": False} | options
        return BorrowedRegion(7, self.descriptor, offset, size, **arguments)


@pytest.fixture
def file() -> Iterator[File]:
    file = File()
    yield file
    os.close(file.descriptor)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


# -- what a model process has written --------------------------------------------------------------


def test_an_arena_can_be_mapped_whole_by_another_process(file: File) -> None:
    region = ArenaRegion(file.descriptor)
    shared = region.file
    assert os.path.samestat(os.fstat(shared.descriptor), os.fstat(file.descriptor))
    assert shared == SharedFile(shared.descriptor, 0, SIZE)


def test_an_arena_outlives_the_descriptor_that_it_was_made_of() -> None:
    descriptor = os.memfd_create("arena")
    os.ftruncate(descriptor, PAGE)
    region = ArenaRegion(descriptor)
    os.close(descriptor)
    assert os.fstat(region.file.descriptor).st_size == PAGE


@pytest.mark.slow
def test_an_arena_that_nobody_holds_leaves_no_descriptor(file: File) -> None:
    region = ArenaRegion(file.descriptor)
    descriptor = region.file.descriptor
    assert _is_open(descriptor)
    del region
    gc.collect()
    assert not _is_open(descriptor)


def test_arenas_have_numbers_of_their_own_that_no_client_has(file: File) -> None:
    other = File()
    numbers = {ArenaRegion(one.descriptor).number for one in (file, other)}
    os.close(other.descriptor)
    assert len(numbers) == 2
    assert max(numbers) < 0


def test_an_arena_is_not_for_one_reader_only(file: File) -> None:
    assert not ArenaRegion(file.descriptor).exclusive


def test_blocks_of_an_arena_are_not_looked_up(file: File) -> None:
    with pytest.raises(AssertionError, match="the view of a block"):
        ArenaRegion(file.descriptor).slice(0, 1)


# -- what it has mapped ----------------------------------------------------------------------------


def test_a_borrowed_region_begins_at_its_offset_in_the_file(file: File) -> None:
    region = file.borrowed(PAGE, PAGE + 10)
    assert bytes(region.memory) == PATTERN[PAGE : 2 * PAGE + 10]
    assert (region.number, region.byte_size) == (7, PAGE + 10)


@pytest.mark.parametrize(("offset", "size"), [(0, SIZE + 1), (SIZE, PAGE), (1, PAGE)])
def test_what_is_not_in_the_file_cannot_be_borrowed(file: File, offset: int, size: int) -> None:
    with pytest.raises((OSError, ValueError)):
        file.borrowed(offset, size)
    assert _is_open(file.descriptor)  # which is still the caller's


@pytest.mark.parametrize("exclusive", [False, True])
def test_it_is_for_one_reader_only_if_the_server_says_so(file: File, exclusive: bool) -> None:
    assert file.borrowed(exclusive=exclusive).exclusive == exclusive


def test_what_is_put_into_a_slice_is_in_the_file(file: File) -> None:
    place = file.borrowed(PAGE, PAGE).slice(5, 4)
    place.write(b"abcd")
    assert (
        file.read(PAGE + 4, 6) == PATTERN[PAGE + 4 : PAGE + 5] + b"abcd" + PATTERN[PAGE + 9 :][:1]
    )
    assert bytes(place.read()) == b"abcd"
    assert (place.offset, place.size) == (5, 4)


# -- for the model alone ---------------------------------------------------------------------------


@given(
    first=st.integers(0, 2),
    offset=st.integers(0, 2 * PAGE - 1),
    size=st.integers(1, 2 * PAGE),
)
def test_a_private_view_is_of_the_bytes_that_are_asked_for(
    first: int, offset: int, size: int
) -> None:
    """Wherever pages begin."""
    file = File()
    begin = first * PAGE
    size = min(size, SIZE - begin - offset)
    region = file.borrowed(begin, SIZE - begin)
    private = region.private(offset, size)
    assert bytes(private) == PATTERN[begin + offset :][:size]
    os.close(file.descriptor)


def test_what_a_model_writes_to_a_private_view_is_its_own(file: File) -> None:
    region = file.borrowed()
    mine, other = region.private(10, PAGE), region.private(10, PAGE)
    mine[0] = 255
    assert file.read(10, 1) == bytes(other[:1]) == bytes(region.memory[10:11]) == b"\n"


def test_a_private_view_shows_what_the_client_writes(file: File) -> None:
    """Nothing is copied before the model writes."""
    private = file.borrowed().private(0, SIZE)
    private[2 * PAGE] = 255
    file.write(10, b"new")
    assert bytes(private[10:13]) == b"new"


@pytest.mark.parametrize(("offset", "size"), [(PAGE, 1), (PAGE + 5, 9), (0, 2 * PAGE)])
def test_memory_that_was_cut_off_is_not_viewed(file: File, offset: int, size: int) -> None:
    """To look at it would end the process."""
    region = file.borrowed()
    os.ftruncate(file.descriptor, PAGE)
    with pytest.raises(ValueError, match="greater than file size"):
        region.private(offset, size)
    assert bytes(region.private(0, PAGE)) == PATTERN[:PAGE]


# -- the end ---------------------------------------------------------------------------------------


def test_a_region_that_is_given_back_leaves_no_descriptor(file: File) -> None:
    descriptor = os.dup(file.descriptor)
    region = BorrowedRegion(7, descriptor, 0, SIZE, exclusive=False)
    region.close()
    assert not _is_open(descriptor)


@pytest.mark.slow
def test_views_outlive_the_region(file: File) -> None:
    region = BorrowedRegion(7, os.dup(file.descriptor), 0, SIZE, exclusive=False)
    private, place = region.private(3, 9), region.slice(3, 9)
    region.close()
    del region
    gc.collect()
    assert bytes(private) == bytes(place.read()) == PATTERN[3:12]
