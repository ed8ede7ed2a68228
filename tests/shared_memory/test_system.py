"""POSIX shared memory: what is mapped, what is refused, and when it is let go."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from harness.posix_memory import PosixMemory
from penstock.core.errors import InferenceError, InternalError, InvalidRequestError
from penstock.shared_memory.system import SystemRegion, open_system_region


def opened(memory: PosixMemory, offset: int = 0, byte_size: int = 256) -> SystemRegion:
    return open_system_region(1, "r", memory.key, offset, byte_size)


@pytest.mark.contract("X-07")
def test_slice_is_the_clients_memory(memory: PosixMemory) -> None:
    memory.data[8:12] = b"abcd"
    place = opened(memory).slice(8, 4)
    assert bytes(place.read()) == b"abcd"
    memory.data[8:12] = b"wxyz"
    assert bytes(place.read()) == b"wxyz"


def test_inputs_cannot_be_written_to(memory: PosixMemory) -> None:
    view = opened(memory).slice(0, 4).read()
    assert memoryview(view).readonly
    assert not np.frombuffer(view, np.uint8).flags.writeable


def test_output_is_written_from_the_beginning_of_the_slice(memory: PosixMemory) -> None:
    opened(memory).slice(16, 8).write(np.array([1], "<i4").data)
    assert bytes(memory.data[12:28]) == b"\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0"


def test_output_of_no_bytes_writes_nothing(memory: PosixMemory) -> None:
    memory.data[0] = 7
    opened(memory).slice(0, 8).write(b"")
    assert memory.data[0] == 7


@pytest.mark.contract("G-15")
def test_region_begins_at_its_offset(memory: PosixMemory) -> None:
    memory.data[4096 + 3] = 5
    assert opened(memory, offset=4096).slice(3, 1).read()[0] == 5


@pytest.mark.contract("X-10")
@pytest.mark.parametrize(("offset", "byte_size"), [(0, 8192), (4096, 4096)])
def test_region_may_reach_to_the_end_of_its_memory(
    memory: PosixMemory, offset: int, byte_size: int
) -> None:
    memory.data[8191] = 7
    region = opened(memory, offset, byte_size)
    assert bytes(region.slice(byte_size - 1, 1).read()) == b"\7"


def test_slashes_before_the_name_do_not_matter(memory: PosixMemory) -> None:
    region = open_system_region(1, "r", memory.key.lstrip("/"), 0, 64)
    assert region.byte_size == 64


@pytest.mark.contract("X-07")
@pytest.mark.parametrize("key", ["/none-such", "", "/", "/a/b", "/../shm/x", "/.", "/" + "x" * 300])
def test_key_that_cannot_be_opened_is_told(key: str) -> None:
    with pytest.raises(InternalError) as refused:
        open_system_region(1, "r", key, 0, 64)
    assert refused.value.message == f"Unable to open shared memory region: '{key}'"


@pytest.mark.contract("X-07", "SEC-06")
@pytest.mark.parametrize("slash", ["", "/", "//"])
def test_reserved_keys_are_refused(slash: str) -> None:
    key = f"{slash}triton_python_backend_shm_region_1"
    text = f"cannot register shared memory region 'r' with key '{key}' as the key contains"
    with pytest.raises(InvalidRequestError, match=text):
        open_system_region(1, "r", key, 0, 64)


@pytest.mark.contract("X-10")
@pytest.mark.parametrize(
    ("offset", "byte_size", "reason"),
    [
        (0, 8193, "invalid args"),
        (4096, 4097, "invalid args"),
        (1 << 63, 64, "invalid args"),
        (4096, (1 << 64) - 4096, "invalid args"),
        (0, 0, "unable to process address spaceInvalid argument"),
        (64, 64, "unable to process address spaceInvalid argument"),
    ],
)
def test_part_that_cannot_be_mapped_is_refused(
    memory: PosixMemory, offset: int, byte_size: int, reason: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        opened(memory, offset, byte_size)
    assert refused.value.message == f"failed to register shared memory region 'r': {reason}"


def test_what_is_no_memory_is_refused(memory: PosixMemory) -> None:
    path = memory.path.with_suffix(".fifo")
    os.mkfifo(path)
    try:
        with pytest.raises(InternalError, match="Invalid shared memory region: '/"):
            open_system_region(1, "r", f"/{path.name}", 0, 64)
    finally:
        path.unlink()


def test_symbolic_link_is_not_followed(memory: PosixMemory, tmp_path: Path) -> None:
    target = tmp_path / "secret"
    target.write_bytes(bytes(64))
    link = memory.path.with_suffix(".link")
    link.symlink_to(target)
    try:
        with pytest.raises(InternalError, match="Unable to open"):
            open_system_region(1, "r", f"/{link.name}", 0, 64)
    finally:
        link.unlink()


def test_failed_registrations_leave_no_descriptor(memory: PosixMemory) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for byte_size in (0, 8193):
        with pytest.raises(InferenceError):
            opened(memory, byte_size=byte_size)
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory_that_was_cut_off_is_refused_instead_of_touched(memory: PosixMemory) -> None:
    region = opened(memory, byte_size=8192)
    os.truncate(memory.path, 4096)
    with pytest.raises(InvalidRequestError, match="larger than what is left"):
        region.slice(0, 64)


def test_output_is_not_written_to_memory_that_was_cut_off_meanwhile(memory: PosixMemory) -> None:
    """The slice was taken when the request came; what it is for may be a long time later."""
    place = opened(memory, byte_size=8192).slice(4096, 64)
    os.truncate(memory.path, 4096)
    with pytest.raises(InvalidRequestError, match="larger than what is left"):
        place.write(bytes(64))


def test_region_is_in_use_while_anything_looks_at_it(memory: PosixMemory) -> None:
    region, idle = opened(memory), []
    region.uses.on_idle = lambda: idle.append(1)
    place = region.slice(0, 64)
    array = np.frombuffer(place.read(), np.int32)[4:8]
    del place
    assert region.uses
    assert not idle
    del array
    assert not region.uses
    assert idle == [1]


def test_memory_stays_mapped_for_who_looks_at_it(memory: PosixMemory) -> None:
    memory.data[0] = 9
    region = opened(memory)
    place = region.slice(0, 64)
    region.close()
    assert place.read()[0] == 9


def test_closing_gives_memory_and_descriptor_back(memory: PosixMemory) -> None:
    before = _descriptors(memory), _maps(memory)
    region = opened(memory)
    assert _maps(memory) == before[1] + 1
    region.close()
    region.close()
    assert (_descriptors(memory), _maps(memory)) == before


def _descriptors(memory: PosixMemory) -> int:
    links = Path("/proc/self/fd").iterdir()
    return sum(os.path.islink(link) and memory.key in os.readlink(link) for link in links)


def _maps(memory: PosixMemory) -> int:
    return Path("/proc/self/maps").read_text().count(memory.key)


@pytest.mark.parametrize("key", ["psm_1a2b3c4d", "/psm_x", "//sem.mp-1", "torch_1_2", "nccl-Ab"])
def test_objects_that_programs_keep_to_themselves_are_refused(key: str) -> None:
    with pytest.raises(InvalidRequestError, match="like those of programs for themselves"):
        open_system_region(1, "r", key, 0, 64)


def test_names_begin_with_the_prefix(memory: PosixMemory) -> None:
    name = memory.key.lstrip("/")
    open_system_region(1, "r", memory.key, 0, 64, prefix=name[:4]).close()
    with pytest.raises(InvalidRequestError, match="does not begin with 'clients_'"):
        open_system_region(1, "r", memory.key, 0, 64, prefix="clients_")


def test_a_prefix_allows_what_it_names() -> None:
    with pytest.raises(InternalError, match="Unable to open shared memory region: '/psm_none'"):
        open_system_region(1, "r", "/psm_none", 0, 64, prefix="psm_")
