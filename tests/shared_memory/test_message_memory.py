"""Memory for messages: room for each, even for its first tensor, and free with the last view."""

from __future__ import annotations

import os

import numpy as np
import pytest

from penstock.http2.grpc import CHOSEN_FROM
from penstock.shared_memory.message_memory import WORTH, MessageMemory

MIB = 1 << 20


@pytest.fixture
def memory() -> MessageMemory:
    return MessageMemory()


def _reserve(memory: MessageMemory, size: int, contents: int = 0) -> memoryview:
    reserved = memory.reserve(size, contents)
    assert reserved is not None
    return reserved


def _at(data: memoryview) -> int:
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])


def test_memory_is_asked_for_as_soon_as_it_is_worth_it() -> None:
    assert WORTH == CHOSEN_FROM


@pytest.mark.parametrize("contents", [0, 1, 5, 63, 64, 100])
def test_first_tensor_lies_evenly(memory: MessageMemory, contents: int) -> None:
    assert _at(_reserve(memory, MIB, contents)[contents:]) % 64 == 0


def test_memory_is_free_when_nobody_looks_at_a_part_of_it(memory: MessageMemory) -> None:
    message = _reserve(memory, MIB)
    tensor = np.frombuffer(message[100:], np.uint8)
    del message
    assert memory.used == 1
    del tensor
    assert memory.used == 0


def test_a_place_keeps_the_message(memory: MessageMemory) -> None:
    message = _reserve(memory, MIB, 100)
    place = memory.place(message, 100, message[100:200])
    del message
    assert place is not None
    assert memory.used == 1


def test_who_maps_the_file_sees_the_tensor_in_its_place(memory: MessageMemory) -> None:
    message = _reserve(memory, MIB, 8)
    message[8:13] = b"hello"
    place, file = memory.place(message, 8, message[8:13]), memory.file
    assert place is not None
    assert file is not None
    assert os.pread(file.descriptor, place.size, file.offset + place.offset) == b"hello"


def test_what_lies_unevenly_or_elsewhere_has_no_place(memory: MessageMemory) -> None:
    message = _reserve(memory, MIB, 8)
    assert memory.place(message, 9, message[9:]) is None
    other = memoryview(bytearray(MIB))
    assert memory.place(other, 8, other[8:]) is None
    assert memory.place(bytes(64), 8, bytes(8)) is None


@pytest.mark.parametrize("size", [0, WORTH - 1, (64 << 20) + 1])
def test_small_and_very_large_messages_lie_elsewhere(memory: MessageMemory, size: int) -> None:
    assert memory.reserve(size, 0) is None


def test_messages_that_were_announced_leave_others_without_room_not_without_memory(
    memory: MessageMemory,
) -> None:
    announced = []
    while (reserved := memory.reserve(64 << 20, 0)) is not None:
        announced.append(reserved)
    assert len(announced) == 256
    assert _touched(memory) == 0
    announced.pop()
    assert memory.reserve(64 << 20, 0) is not None


def _touched(memory: MessageMemory) -> int:
    assert memory.file is not None
    return os.fstat(memory.file.descriptor).st_blocks


def test_it_leaves_no_descriptor_behind() -> None:
    before = len(os.listdir("/proc/self/fd"))
    memory = MessageMemory()
    message = _reserve(memory, MIB)
    del memory
    message[:5] = b"still"
    assert bytes(message[:5]) == b"still"
    del message
    assert len(os.listdir("/proc/self/fd")) == before
