"""Regions of a GPU's memory, opened by the IPC handle that their owner has sent (X-11).

Tensors in them are copied to the host for the model and back: the server's tensors live in host
memory. The client is spared its own copy and the transfer through the socket.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from penstock.core.buffer import Buffer
from penstock.core.errors import InternalError, InvalidRequestError
from penstock.core.log.log_throttle import repeat_note
from penstock.core.region import Region, RegionSlice
from penstock.shared_memory.uses import RegionUses

logger = logging.getLogger(__name__)

HANDLE_SIZE = 64
"""Bytes of a `cudaIpcMemHandle_t`."""


class CudaError(Exception):
    """A call to CUDA failed; the text is CUDA's own."""


class CudaMemory:
    """The calls to CUDA that regions need; all raise `CudaError`. Addresses are the device's."""

    def __init__(self) -> None:
        try:
            self._runtime: Any = importlib.import_module("cuda.bindings.runtime")
            self._driver: Any = importlib.import_module("cuda.bindings.driver")
        except ImportError as error:
            raise CudaError(f"pip install 'penstock[cuda]' is needed: {error}") from error

    def open(self, device: int, handle: bytes) -> int:
        """The address of the memory that another process has exported."""
        self._use(device)
        opened = self._runtime.cudaIpcMemHandle_t()
        ctypes.memmove(int(opened.getPtr()), handle, HANDLE_SIZE)
        flags = self._runtime.cudaIpcMemLazyEnablePeerAccess
        return int(self._checked(self._runtime.cudaIpcOpenMemHandle(opened, flags)))

    def size(self, address: int) -> int:
        """Bytes of the allocation that begins at the address."""
        status, _, size = self._driver.cuMemGetAddressRange(address)
        if int(status):
            raise CudaError(str(status))
        return int(size)

    def close(self, device: int, address: int) -> None:
        """Close opened memory."""
        self._use(device)
        self._checked(self._runtime.cudaIpcCloseMemHandle(address))

    def read(self, device: int, address: int, size: int) -> Buffer:
        """A copy of device memory on the host."""
        copy = np.empty(size, np.uint8)
        self._copy(device, copy.ctypes.data, address, size, "cudaMemcpyDeviceToHost")
        return copy.data

    def write(self, device: int, address: int, data: Buffer) -> None:
        """Copy from the host to device memory."""
        source = np.frombuffer(data, np.uint8)
        self._copy(device, address, source.ctypes.data, source.size, "cudaMemcpyHostToDevice")

    def _copy(self, device: int, to: int, source: int, size: int, kind: str) -> None:
        self._use(device)
        direction = getattr(self._runtime.cudaMemcpyKind, kind)
        self._checked(self._runtime.cudaMemcpy(to, source, size, direction))

    def _use(self, device: int) -> None:
        self._checked(self._runtime.cudaSetDevice(device))

    def _checked(self, answer: tuple[Any, ...]) -> Any:
        """The value of an answer, whose first part is the status."""
        status, *values = answer
        if int(status):
            _, text = self._runtime.cudaGetErrorString(status)
            raise CudaError(text.decode())
        return values[0] if values else None


class CudaRegion(Region):
    """Memory of GPU number `device`, at an address in this process."""

    def __init__(
        self, number: int, name: str, cuda: CudaMemory, device: int, address: int, byte_size: int
    ) -> None:
        super().__init__(number, name, byte_size)
        self.device = device
        self.uses = RegionUses()
        self._cuda = cuda
        self._address = address

    def slice(self, offset: int, size: int) -> RegionSlice:
        number = self.uses.number()
        found = _CudaSlice(self, offset, size, partial(self.uses.end, number))
        self.uses.begin(number, found)
        return found

    def close(self) -> None:
        """Close the memory, which is idle."""
        try:
            self._cuda.close(self.device, self._address)
        except CudaError as error:  # the owner may have ended; there is nothing left to close
            if (note := repeat_note("CUDA IPC close")) is not None:
                logger.error("failed to close CUDA IPC handle: %s%s", error, note)

    def read(self, offset: int, size: int) -> Buffer:
        """A copy of the memory, on the host."""
        try:
            return self._cuda.read(self.device, self._address + offset, size)
        except CudaError as error:
            raise self._failed("read from", error) from error

    def write(self, offset: int, data: Buffer) -> None:
        """Copy bytes from the host."""
        try:
            self._cuda.write(self.device, self._address + offset, data)
        except CudaError as error:
            raise self._failed("write to", error) from error

    def _failed(self, what: str, error: CudaError) -> InternalError:
        return InternalError(f"failed to {what} CUDA shared memory region '{self.name}': {error}")


class _CudaSlice(RegionSlice):
    def __init__(
        self, region: CudaRegion, offset: int, size: int, on_release: Callable[[], None]
    ) -> None:
        super().__init__(region, offset, size, on_release)
        self._memory = region

    def read(self) -> Buffer:
        return self._memory.read(self.offset, self.size)

    def write(self, data: Buffer) -> None:
        self._memory.write(self.offset, data)


def open_cuda_region(
    number: int,
    name: str,
    handle: bytes,
    device: int,
    byte_size: int,
    cuda: Callable[[], CudaMemory] = CudaMemory,
) -> CudaRegion:
    """Open memory by its IPC handle; clients learn only that it failed, the log says why."""
    refused = InvalidRequestError("failed to register shared memory region: invalid args")
    if len(handle) != HANDLE_SIZE:
        raise refused
    try:
        memory = cuda()
        address = memory.open(device, handle)
    except (CudaError, OverflowError) as error:  # a device number out of range
        if (note := repeat_note("CUDA IPC open")) is not None:
            logger.error("failed to open CUDA IPC handle: %s%s", error, note)
        raise refused from error
    try:
        fits = byte_size <= memory.size(address)
    except CudaError as error:
        if (note := repeat_note("CUDA size")) is not None:
            logger.error("failed to get the size of CUDA memory: %s%s", error, note)
        fits = False
    region = CudaRegion(number, name, memory, device, address, byte_size)
    if not fits or not byte_size:
        region.close()
        raise InvalidRequestError(f"failed to register shared memory region '{name}': invalid args")
    return region
