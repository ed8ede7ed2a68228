"""Names of regions: registered once, found by kind, gone when nobody uses them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.posix_memory import PosixMemory, posix_memory
from penstock.core.errors import (
    AlreadyExistsError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedError,
)
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType
from penstock.shared_memory.cuda import CudaRegion
from penstock.shared_memory.registry import Regions
from penstock.shared_memory.system import SystemRegion
from penstock.shared_memory.tensors import tensor_in


@pytest.fixture
def regions() -> Iterator[Regions]:
    regions = Regions(allowed=True)
    yield regions
    regions.close()


def names(regions: Regions) -> list[str]:
    return [region.name for region in regions.status(SystemRegion)]


@pytest.mark.contract("G-14")
def test_status_tells_one_or_all(regions: Regions, memory: PosixMemory) -> None:
    with posix_memory() as other:
        regions.register_system("b", memory.key, 4096, 64)
        regions.register_system("a", other.key, 0, 128)
    (found,) = regions.status(SystemRegion, "b")
    assert (found.name, found.key, found.offset, found.byte_size) == ("b", memory.key, 4096, 64)
    assert names(regions) == ["a", "b"]


@pytest.mark.contract("X-09")
def test_name_can_be_taken_once(regions: Regions, memory: PosixMemory) -> None:
    regions.register_system("a", memory.key, 0, 64)
    with pytest.raises(AlreadyExistsError, match="shared memory region 'a' already in manager"):
        regions.register_system("a", "/other", 0, 64)
    with pytest.raises(AlreadyExistsError):
        regions.register_cuda("a", bytes(64), 0, 64)


def test_key_can_be_registered_once(regions: Regions, memory: PosixMemory) -> None:
    regions.register_system("a", memory.key, 0, 64)
    with pytest.raises(InternalError) as refused:
        regions.register_system("b", memory.key, 0, 64)
    assert refused.value.message == f"Invalid shared memory region: '{memory.key}'"


@pytest.mark.contract("X-09")
def test_unknown_names_are_told_by_kind(regions: Regions) -> None:
    with pytest.raises(NotFoundError, match="Unable to find shared memory region: 'x'"):
        regions.slice("x", 0, 1)
    with pytest.raises(NotFoundError, match="Unable to find system shared memory region: 'x'"):
        regions.status(SystemRegion, "x")
    with pytest.raises(NotFoundError, match="Unable to find cuda shared memory region: 'x'"):
        regions.status(CudaRegion, "x")


@pytest.mark.contract("G-17")
def test_region_of_another_kind_is_told(regions: Regions, memory: PosixMemory) -> None:
    regions.register_system("a", memory.key, 0, 64)
    text = "The region named 'a' is registered as system shared memory, not CUDA shared memory"
    with pytest.raises(NotFoundError, match=text):
        regions.status(CudaRegion, "a")
    assert regions.status(CudaRegion) == []
    regions.unregister(CudaRegion)
    regions.unregister(CudaRegion, "a")
    assert names(regions) == ["a"]


@pytest.mark.contract("G-16")
def test_one_or_all_are_unregistered(regions: Regions, memory: PosixMemory) -> None:
    with posix_memory() as other, posix_memory() as third:
        for name, key in zip("abc", (memory.key, other.key, third.key), strict=True):
            regions.register_system(name, key, 0, 64)
    regions.unregister(SystemRegion, "b")
    assert names(regions) == ["a", "c"]
    regions.unregister(SystemRegion, "unknown")
    regions.unregister(SystemRegion)
    assert names(regions) == []


@pytest.mark.contract("G-16")
def test_region_in_use_is_unregistered_when_it_no_longer_is(
    regions: Regions, memory: PosixMemory
) -> None:
    """Until then it is there as before, also for new requests."""
    regions.register_system("a", memory.key, 0, 64)
    place = regions.slice("a", 0, 8)
    regions.unregister(SystemRegion, "a")
    assert names(regions) == ["a"]
    other = regions.slice("a", 8, 8)
    del place
    assert names(regions) == ["a"]
    del other
    assert names(regions) == []
    regions.register_system("a", memory.key, 0, 64)


@pytest.mark.contract("G-16")
def test_descriptor_of_a_region_lasts_as_long_as_its_uses(
    regions: Regions, memory: PosixMemory
) -> None:
    """A model process may still map it meanwhile; afterwards it may be another file's."""
    regions.register_system("a", memory.key, 0, 64)
    (region,) = regions.status(SystemRegion, "a")
    place = regions.slice("a", 0, 8)
    regions.unregister(SystemRegion, "a")
    file = region.file
    assert file is not None
    assert os.fstat(file.descriptor).st_size == len(memory.data)
    place.write(b"x")
    del place
    assert region.file is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file.descriptor)


@pytest.mark.contract("G-16")
def test_end_of_the_server_closes_each_descriptor_once(memory: PosixMemory) -> None:
    """What is used beyond the end touches no file that has got the descriptor since."""
    regions = Regions(allowed=True)
    regions.register_system("a", memory.key, 0, 64)
    place = regions.slice("a", 0, 8)
    (region,) = regions.status(SystemRegion, "a")
    assert region.file is not None
    descriptor = region.file.descriptor
    regions.unregister(SystemRegion, "a")
    regions.close()
    other = os.open(os.devnull, os.O_RDONLY)
    try:
        assert other == descriptor
        place.write(b"x")
        del place
        region.close()
        assert os.fstat(other)
    finally:
        os.close(other)


@pytest.mark.contract("G-16")
def test_answered_request_uses_no_region(regions: Regions, memory: PosixMemory) -> None:
    """Also while something still holds it; what was read stays readable."""
    regions.register_system("a", memory.key, 0, 64)
    memory.data[8] = 5
    tensor = tensor_in(regions.slice("a", 8, 4), DataType.INT32, [1])
    text = tensor_in(regions.slice("a", 16, 4), DataType.BYTES, [1])
    places = {"y": regions.slice("a", 12, 4)}
    request = InferenceRequest("m", inputs={"x": tensor, "s": text}, output_places=places)
    regions.unregister(SystemRegion, "a")
    assert names(regions) == ["a"]
    regions.release(request)
    assert names(regions) == []
    assert tensor.numpy().tolist() == [5]
    regions.release(request)


@pytest.mark.contract("X-08", "SEC-05", "CL-47")
def test_nothing_can_be_registered_unless_allowed() -> None:
    regions = Regions()
    text = (
        "Client shared memory is disabled. Start the server with '--allow-client-shm=true'"
        " to enable."
    )
    with pytest.raises(UnsupportedError) as refused:
        regions.register_system("a", "/k", 0, 64)
    assert refused.value.message == text
    with pytest.raises(UnsupportedError):
        regions.register_cuda("a", bytes(64), 0, 64)
    with pytest.raises(UnsupportedError):
        regions.unregister(SystemRegion)
    assert regions.status(SystemRegion) == []


@pytest.mark.contract("X-10")
@pytest.mark.parametrize(("offset", "size"), [(0, 256), (255, 1), (64, 192), (128, 0)])
def test_slice_may_reach_to_the_end(
    regions: Regions, memory: PosixMemory, offset: int, size: int
) -> None:
    regions.register_system("a", memory.key, 0, 256)
    assert len(regions.slice("a", offset, size).read()) == size


@pytest.mark.contract("X-10")
@pytest.mark.parametrize(
    ("offset", "size", "what"),
    [
        (256, 1, "offset"),
        (1 << 40, 64, "offset"),
        (-64, 64, "offset"),
        (0, 257, "offset + byte size"),
        (240, 64, "offset + byte size"),
        (0, 0, "offset + byte size"),
        (0, -1, "offset + byte size"),
        (128, -1, "offset + byte size"),
        (128, (1 << 64) - 1, "offset + byte size"),
    ],
)
def test_slice_outside_is_refused(
    regions: Regions, memory: PosixMemory, offset: int, size: int, what: str
) -> None:
    regions.register_system("a", memory.key, 0, 256)
    with pytest.raises(InvalidRequestError) as refused:
        regions.slice("a", offset, size)
    assert refused.value.message == f"Invalid {what} for shared memory region: 'a'"


@pytest.mark.contract("X-10")
def test_offset_of_the_region_gives_no_more_room(regions: Regions, memory: PosixMemory) -> None:
    """Else requests could read what follows the mapping."""
    regions.register_system("a", memory.key, 4096, 256)
    with pytest.raises(InvalidRequestError, match="Invalid offset for"):
        regions.slice("a", 4096, 64)


@given(st.integers(), st.integers())
def test_any_slice_is_inside_or_refused(offset: int, size: int) -> None:
    regions = Regions(allowed=True)
    with posix_memory() as memory:
        regions.register_system("a", memory.key, 0, 100)
    try:
        place = regions.slice("a", offset, size)
    except InferenceError:
        assert offset < 0 or size <= 0 or offset + size > 100
    else:
        assert len(place.read()) == size
        assert 0 <= offset <= offset + size <= 100
        del place
    regions.close()
