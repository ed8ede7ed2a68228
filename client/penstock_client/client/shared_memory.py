"""Tensors in shared memory: memory of the client that servers on the same machine read and write.

`SharedMemory` is one object of POSIX shared memory, divided from its start to its end.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory as PosixMemory
from secrets import token_hex
from typing import Any

import numpy as np

from penstock.core.tensor import Array, DataType, Tensor

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True, eq=False)
class SharedTensor:
    """A place in shared memory: an input that is there, or room for an output."""

    memory: SharedMemory
    offset: int
    size: int
    datatype: str = ""
    shape: tuple[int, ...] = ()

    def numpy(self) -> Array:
        """The elements, as a view of the memory that may be written to; not for BYTES."""
        kind = DataType(self.datatype).numpy
        if kind.hasobject:
            raise ValueError("BYTES in shared memory cannot be looked at as an array")
        return np.frombuffer(self.memory.bytes(self.offset, self.size), kind).reshape(self.shape)

    def holding(self, datatype: str, shape: Sequence[int]) -> Tensor:
        """The tensor that a model has written here, not copied."""
        kind, count = DataType(datatype), int(np.prod(shape, dtype=np.int64))
        data = self.memory.bytes(self.offset, self.size)
        if kind is not DataType.BYTES:
            return Tensor(kind, shape, data[: count * kind.itemsize])
        end = 0
        for _ in range(count):  # each behind its length
            end += 4 + int.from_bytes(data[end : end + 4], "little")
        return Tensor(kind, shape, data[:end])


class SharedMemory:
    """Memory for inputs and outputs, which `Client.shared_memory` makes known to the servers.

    Arrays that look at it may outlive it: the memory is freed with the last of them.
    """

    def __init__(self, size: int) -> None:
        # Its own mapping may not be closed while arrays look at it; this one goes with the last.
        self._memory = PosixMemory(f"penstock_client_{token_hex(8)}", create=True, size=size)
        self._memory.close()
        with open(f"/dev/shm/{self.name}", "r+b") as file:
            self._bytes = memoryview(mmap.mmap(file.fileno(), size))
        self._used = 0
        self.size = size

    @property
    def name(self) -> str:
        """The name under which servers know it."""
        return self.key.removeprefix("/")

    @property
    def key(self) -> str:
        """The name of the object, as for `shm_open`."""
        return "/" + self._memory.name.removeprefix("/")

    def put(self, value: Any) -> SharedTensor:
        """Copy an array or tensor into the memory, to send it as an input.

        Raises `ValueError` where the memory is full.
        """
        tensor = value if isinstance(value, Tensor) else Tensor.from_numpy(np.asarray(value))
        place = self._take(tensor.nbytes, tensor.datatype.value, tensor.shape)
        self.bytes(place.offset, place.size)[:] = memoryview(tensor.buffer).cast("B")
        return place

    def room(self, datatype: str, shape: Sequence[int]) -> SharedTensor:
        """Room for a tensor of numbers that a model writes, or that is written by `numpy()`."""
        size = DataType(datatype).itemsize * int(np.prod(shape, dtype=np.int64))
        if not size:
            raise ValueError(f"{datatype} of shape {list(shape)} has no size; use `reserve`")
        return self._take(size, datatype, tuple(shape))

    def reserve(self, size: int) -> SharedTensor:
        """Room of `size` bytes for an output of any datatype."""
        return self._take(size, "", ())

    def clear(self) -> None:
        """Begin again at the start; what was there may be overwritten."""
        self._used = 0

    def bytes(self, offset: int, size: int) -> memoryview:
        """A part of the memory."""
        return self._bytes[offset : offset + size]

    def close(self) -> None:
        """Remove the object, so that nobody can open it any more."""
        self._memory.unlink()

    def _take(self, size: int, datatype: str, shape: tuple[int, ...]) -> SharedTensor:
        start = -(-self._used // _ALIGNMENT) * _ALIGNMENT
        if start + size > self.size:
            raise ValueError(
                f"{size} bytes do not fit: the memory has {self.size}, of which {start} are taken"
            )
        self._used = start + size
        return SharedTensor(self, start, size, datatype, shape)
