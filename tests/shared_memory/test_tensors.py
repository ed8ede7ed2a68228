"""Tensors in memory that a client shares."""

from __future__ import annotations

import numpy as np
import pytest

from harness.posix_memory import PosixMemory
from penstock.core.errors import InternalError
from penstock.core.tensor import DataType, Tensor
from penstock.shared_memory.system import open_system_region
from penstock.shared_memory.tensors import put, tensor_in


@pytest.mark.contract("GP-11")
def test_input_is_a_view_of_the_clients_memory(memory: PosixMemory) -> None:
    place = open_system_region(1, "r", memory.key, 0, 256).slice(0, 8)
    tensor = tensor_in(place, DataType.INT32, [2])
    memory.data[0] = 3
    assert tensor.numpy().tolist() == [3, 0]
    assert tensor.shared is place
    assert tensor.reshaped([2, 1]).shared is place


def test_strings_are_copied(memory: PosixMemory) -> None:
    """Else the client could change their lengths after these were checked."""
    memory.data[:5] = b"\1\0\0\0a"
    place = open_system_region(1, "r", memory.key, 0, 256).slice(0, 5)
    tensor = tensor_in(place, DataType.BYTES, [1])
    memory.data[0] = 255
    assert tensor.elements() == [b"a"]
    assert tensor.shared is None


def test_output_is_put_where_the_client_wants_it(memory: PosixMemory) -> None:
    place = open_system_region(1, "r", memory.key, 0, 256).slice(64, 64)
    put("OUT", Tensor.from_numpy(np.array([1, 2], np.int32)), place)
    assert np.frombuffer(memory.data, np.int32)[16:18].tolist() == [1, 2]


@pytest.mark.contract("GP-12")
def test_output_may_be_as_large_as_its_place(memory: PosixMemory) -> None:
    place = open_system_region(1, "r", memory.key, 0, 256).slice(248, 8)
    put("OUT", Tensor.from_numpy(np.array([1, 2], np.int32)), place)
    assert np.frombuffer(memory.data, np.int32)[62:65].tolist() == [1, 2, 0]


@pytest.mark.contract("GP-12")
def test_output_that_is_too_large_is_refused(memory: PosixMemory) -> None:
    place = open_system_region(1, "r", memory.key, 0, 256).slice(0, 7)
    with pytest.raises(InternalError) as refused:
        put("OUT", Tensor.from_numpy(np.zeros(2, np.int32)), place)
    assert refused.value.message == (
        "shared memory size specified with the request for output 'OUT' (7 bytes) should be at"
        " least 8 bytes to hold the results"
    )
    assert not any(memory.data)
