"""Regions of shared memory, as rooms above the one of shared memory see them."""

from __future__ import annotations

from penstock.core.region import HostSlice, Region, RegionSlice


class Plain(Region):
    """A region with the facts that all have."""

    def slice(self, offset: int, size: int) -> RegionSlice:
        return HostSlice(self, offset, memoryview(bytearray(size)))


def test_a_plain_region_is_anybody_s_and_has_no_file() -> None:
    region = Plain(3, "r", 64)
    assert (region.exclusive, region.readers, region.file) == (False, None, None)
    assert (region.number, region.name, region.byte_size) == (3, "r", 64)


def test_a_slice_is_released_once_and_written_from_its_beginning() -> None:
    released: list[int] = []
    checked: list[int] = []
    memory = bytearray(8)
    place = HostSlice(
        Plain(1, "r", 8),
        2,
        memoryview(memory),
        lambda: released.append(1),
        lambda: checked.append(1),
    )
    place.write(memoryview(bytes([1, 2, 3, 4])).cast("H"))
    place.write(b"")
    assert (bytes(memory), checked) == (b"\1\2\3\4" + bytes(4), [1])
    assert (place.offset, place.size, bytes(place.read())) == (2, 8, bytes(memory))
    assert memoryview(place.read()).readonly
    place.release()
    place.release()
    assert released == [1]
