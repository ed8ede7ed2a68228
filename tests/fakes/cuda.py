"""The part of CUDA that regions use, without a GPU."""

from __future__ import annotations

from penstock.core.buffer import Buffer
from penstock.shared_memory.cuda import HANDLE_SIZE, CudaError

HANDLE = bytes(range(HANDLE_SIZE))
"""The IPC handle of the allocation."""


OWN_HANDLE = bytes(reversed(HANDLE))
"""The IPC handle of an allocation of this process, which CUDA opens for others only."""


class FakeCuda:
    """One allocation on device 1, at address 1000, of as many bytes as `memory` has."""

    def __init__(self, size: int = 64) -> None:
        self.memory = bytearray(size)
        self.opened: list[int] = []
        self.broken = False

    def open(self, device: int, handle: bytes) -> int:
        if handle == OWN_HANDLE:
            raise CudaError("invalid device context")
        if (device, handle) != (1, HANDLE):
            raise CudaError("invalid resource handle")
        self.opened.append(1000)
        return 1000

    def size(self, address: int) -> int:
        return len(self.memory)

    def close(self, device: int, address: int) -> None:
        if self.broken:
            raise CudaError("driver shutting down")
        self.opened.remove(address)

    def read(self, device: int, address: int, size: int) -> Buffer:
        if self.broken:
            raise CudaError("an illegal memory access was encountered")
        return bytes(self.memory[address - 1000 : address - 1000 + size])

    def write(self, device: int, address: int, data: Buffer) -> None:
        if self.broken:
            raise CudaError("an illegal memory access was encountered")
        self.memory[address - 1000 : address - 1000 + len(data)] = data
