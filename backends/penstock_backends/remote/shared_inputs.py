"""`SharedInputs`: large inputs for a server on this host, in memory that both have."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
from bisect import insort
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from penstock.backend import InferenceError, Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock_backends.remote.grpc_connection import GrpcConnection
from penstock_backends.remote.grpc_endpoint import GrpcEndpoint
from penstock_backends.remote.kserve_calls import Heads, ask

logger = logging.getLogger(__name__)

_LARGE: Final = 64 << 10
"""Bytes of an input from which it is worth a place here."""
_PAGE: Final = 4096
_LEAVE_SECONDS: Final = 1.0
_REGISTER: Final = "SystemSharedMemoryRegister"
_UNREGISTER: Final = "SystemSharedMemoryUnregister"


@dataclass(frozen=True, slots=True)
class Lent:
    """Places of a request's inputs in a region: where each begins, and its bytes."""

    region: Region
    places: Mapping[str, tuple[int, int]]


class Region:
    """Memory of so many bytes, of which parts are lent. Its file is gone once the server has it."""

    def __init__(self, size: int) -> None:
        self.name = f"penstock-remote-{os.getpid()}-{uuid4().hex}"
        self.size = size
        self._path = f"/dev/shm/{self.name}"
        file = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            os.posix_fallocate(file, 0, size)  # else a write without room would kill the process
            self._memory = memoryview(mmap.mmap(file, size))
        except OSError:
            self.unlink()
            raise
        finally:
            os.close(file)
        self._free = [(0, size)]

    def unlink(self) -> None:
        """Delete the file; the memory lives until nobody maps it."""
        os.unlink(self._path)

    def lend(self, inputs: Mapping[str, Tensor]) -> Lent | None:
        """Copy the large ones of these here; `None` if there is none, or no room."""
        places: dict[str, tuple[int, int]] = {}
        for name, tensor in inputs.items():
            size = tensor.nbytes
            if size < _LARGE or (at := self._take(_page_aligned(size))) is None:
                continue
            self._memory[at : at + size] = memoryview(tensor.buffer).cast("B")
            places[name] = (at, size)
        return Lent(self, places) if places else None

    def give_back(self, lent: Lent) -> None:
        """Take back what was lent: the call has ended, or nobody wants its answer."""
        for at, size in lent.places.values():
            insort(self._free, (at, _page_aligned(size)))
        merged = self._free[:1]
        for at, size in self._free[1:]:
            before, length = merged[-1]
            if before + length == at:
                merged[-1] = (before, length + size)
            else:
                merged.append((at, size))
        self._free = merged

    def _take(self, size: int) -> int | None:
        for place, (at, length) in enumerate(self._free):
            if length >= size:
                if length == size:
                    del self._free[place]
                else:
                    self._free[place] = (at + size, length - size)
                return at
        return None


class SharedInputs:
    """A region of so many bytes for each address that takes one; others get bytes."""

    def __init__(self, size: int, heads: Heads) -> None:
        self._size = size
        self._heads = heads
        self._regions: dict[GrpcEndpoint, tuple[Region, GrpcConnection]] = {}
        self._left: dict[GrpcEndpoint, str] = {}  # regions that a server may have still
        self._refusals: dict[GrpcEndpoint, GrpcConnection | None] = {}
        self._offers: dict[GrpcEndpoint, asyncio.Future[None]] = {}

    async def offer(self, endpoint: GrpcEndpoint) -> None:
        """Register a region at a server that has none of this connection, and has refused none.

        A registration goes on where this is cancelled: the server may have the region by then.
        """
        if not self._size or self._region(endpoint) is not None:
            return
        if endpoint in self._refusals and self._refusals[endpoint] is endpoint.connection:
            return
        if endpoint not in self._offers:
            offer = asyncio.ensure_future(self._register(endpoint, self._size))
            offer.add_done_callback(lambda _: self._offers.pop(endpoint))
            self._offers[endpoint] = offer
        await asyncio.shield(self._offers[endpoint])

    async def _register(self, endpoint: GrpcEndpoint, size: int) -> None:
        await self._unregister(endpoint)
        connection = endpoint.connection
        try:
            region = Region(size)
        except OSError as error:
            self._refused(endpoint, str(error))
            return
        self._left[endpoint] = region.name
        request = pb.SystemSharedMemoryRegisterRequest(
            name=region.name, key=f"/{region.name}", byte_size=region.size
        )
        answer = pb.SystemSharedMemoryRegisterResponse
        try:
            status, _ = await ask(endpoint, self._heads, _REGISTER, request, answer)
        finally:
            region.unlink()
        if status.code:
            if not status.ours:  # it has answered, and has no region
                del self._left[endpoint]
            self._refused(endpoint, status.message)
        elif connection is not None and connection is endpoint.connection:
            del self._left[endpoint]
            self._regions[endpoint] = region, connection

    async def close(self) -> None:
        """Have each server let go of its region, if it answers."""
        self._size = 0  # none is offered another
        if offers := [*self._offers.values()]:
            _, late = await asyncio.wait(offers, timeout=_LEAVE_SECONDS)
            for offer in late:
                offer.cancel()
        regions, self._regions = self._regions, {}
        self._left |= {endpoint: region.name for endpoint, (region, _) in regions.items()}
        await asyncio.gather(*[self._unregister(endpoint) for endpoint in [*self._left]])

    async def _unregister(self, endpoint: GrpcEndpoint) -> None:
        """Have a server let go of the region before, whose memory it would keep."""
        if name := self._left.pop(endpoint, ""):
            request = pb.SystemSharedMemoryUnregisterRequest(name=name)
            answer = pb.SystemSharedMemoryUnregisterResponse
            with suppress(InferenceError, TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await ask(endpoint, self._heads, _UNREGISTER, request, answer)

    def lend(self, endpoint: GrpcEndpoint, inputs: Mapping[str, Tensor]) -> Lent | None:
        """Places of the large inputs, with these in them; `None` where they go as bytes."""
        region = self._region(endpoint) if self._size else None
        return None if region is None else region.lend(inputs)

    def lost(self, endpoint: GrpcEndpoint, region: Region) -> None:
        """Note that a server has a region no more: somebody has unregistered all of them."""
        if self._regions.get(endpoint, (None, None))[0] is region:
            del self._regions[endpoint]

    def _region(self, endpoint: GrpcEndpoint) -> Region | None:
        region, connection = self._regions.get(endpoint, (None, None))
        if region is not None and connection is not endpoint.connection:  # it may have restarted
            del self._regions[endpoint]
            self._left[endpoint] = region.name
            return None
        return region

    def _refused(self, endpoint: GrpcEndpoint, why: str) -> None:
        self._refusals[endpoint] = endpoint.connection
        logger.warning("remote %s takes no shared memory: %s", endpoint.address, why)


def _page_aligned(size: int) -> int:
    """The size in whole pages."""
    return -(-size // _PAGE) * _PAGE
