"""Client shared memory over HTTP: its endpoints, and tensor parameters (H-17 to H-22)."""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from concurrent.futures import Future
from typing import Any, Protocol

from penstock.core.errors import InferenceError, InvalidRequestError
from penstock.core.region import RegionSlice
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.json.fields import ABSENT, as_string, as_unsigned, member, required, unable
from penstock.gateway.json_bodies import JsonBodies
from penstock.gateway.replies import Reply, json_reply, reply
from penstock.gateway.router import Target
from penstock.shared_memory.cuda import HANDLE_SIZE, CudaRegion
from penstock.shared_memory.registry import Regions
from penstock.shared_memory.system import SystemRegion

_LOOP_SECONDS = 60.0
"""Seconds for a turn of the event loop; only a loop that has ended takes as long."""


class RegionSlices(Protocol):
    """Look-up of slices of regions: `Regions`, or `RegionsOnLoop` for other threads."""

    def slice(self, name: str, offset: int, size: int) -> RegionSlice:
        """As `Regions.slice`."""


class SystemEndpoints:
    """Handlers of the paths below `/v2/systemsharedmemory`."""

    def __init__(self, regions: Regions, bodies: JsonBodies) -> None:
        self._regions = regions
        self._bodies = bodies

    async def status(self, _: HttpCall, target: Target) -> Reply:
        found = self._regions.status(SystemRegion, target.region)
        return json_reply(
            [
                {"name": r.name, "key": r.key, "offset": r.offset, "byte_size": r.byte_size}
                for r in found
            ]
        )

    async def register(self, call: HttpCall, target: Target) -> Reply:
        _check_named(target, "system")
        self._regions.check_allowed()
        key, offset, byte_size = await self._bodies.read(call, _system_region)
        self._regions.register_system(target.region, key, offset, byte_size)
        return reply()

    async def unregister(self, _: HttpCall, target: Target) -> Reply:
        self._regions.unregister(SystemRegion, target.region)
        return reply()


class CudaEndpoints:
    """Handlers of the paths below `/v2/cudasharedmemory`."""

    def __init__(self, regions: Regions, bodies: JsonBodies) -> None:
        self._regions = regions
        self._bodies = bodies

    async def status(self, _: HttpCall, target: Target) -> Reply:
        found = self._regions.status(CudaRegion, target.region)
        return json_reply(
            [{"name": r.name, "device_id": r.device, "byte_size": r.byte_size} for r in found]
        )

    async def register(self, call: HttpCall, target: Target) -> Reply:
        _check_named(target, "cuda")
        self._regions.check_allowed()
        handle, device, byte_size = await self._bodies.read(call, _cuda_region)
        self._regions.register_cuda(target.region, handle, device, byte_size)
        return reply()

    async def unregister(self, _: HttpCall, target: Target) -> Reply:
        self._regions.unregister(CudaRegion, target.region)
        return reply()


def shared_slice(parameters: Any, regions: RegionSlices) -> RegionSlice | None:
    """The region slice in the parameters of a tensor; `None` without one (HI-19)."""
    region = member(parameters, "shared_memory_region")
    if region is ABSENT:
        return None
    name = as_string(region, unable("shared_memory_region"))
    offset = _number(parameters, "shared_memory_offset")
    return regions.slice(name, offset, _number(parameters, "shared_memory_byte_size"))


def _number(parameters: Any, key: str) -> int:
    value = member(parameters, key)
    return 0 if value is ABSENT else as_unsigned(value, unable(key))


class RegionsOnLoop:
    """Proxy of the registry of regions for threads other than the event loop's.

    The registry belongs to the loop's thread, which looks up and counts the users of a region.
    """

    def __init__(self, regions: RegionSlices) -> None:
        self._regions = regions
        self._loop = asyncio.get_running_loop()

    def slice(self, name: str, offset: int, size: int) -> RegionSlice:
        """As `Regions.slice`; waits for a turn of the loop."""
        found: Future[RegionSlice] = Future()

        def look() -> None:
            try:
                found.set_result(self._regions.slice(name, offset, size))
            except InferenceError as error:
                found.set_exception(error)

        self._loop.call_soon_threadsafe(look)
        return found.result(_LOOP_SECONDS)


def _system_region(json: Any) -> tuple[str, int, int]:
    """The key, offset and size in bytes of a region to register."""
    key = as_string(_required_field(json, "key"))
    offset = member(json, "offset")
    offset = 0 if offset is ABSENT else as_unsigned(offset)
    return key, offset, as_unsigned(_required_field(json, "byte_size"))


def _cuda_region(json: Any) -> tuple[bytes, int, int]:
    """The handle, device and size in bytes of a region to register."""
    encoded = as_string(required(_required_field(json, "raw_handle"), "b64", ""))
    device = as_unsigned(required(json, "device_id", ""))
    return _handle(encoded), device, as_unsigned(required(json, "byte_size", ""))


def _check_named(target: Target, kind: str) -> None:
    if not target.region:
        raise InvalidRequestError(
            f"'region name' is necessary to register {kind} shared memory region"
        )


def _required_field(json: Any, key: str) -> Any:
    value = member(json, key)
    if value is ABSENT:
        raise InvalidRequestError(f"Shared memory register request has no '{key}' field")
    return value


def _handle(encoded: str) -> bytes:
    try:
        handle = b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        handle = b""
    if len(handle) != HANDLE_SIZE:
        raise InvalidRequestError("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
    return handle
