"""Client shared memory over HTTP: its endpoints, and tensor parameters (H-17 to H-22)."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from penstock.core.errors import InvalidRequestError
from penstock.core.region import RegionSlice
from penstock.gateway.body import read_body
from penstock.gateway.json.fields import ABSENT, as_string, as_unsigned, member, required, unable
from penstock.gateway.json.text import parse
from penstock.gateway.replies import json_reply, reply
from penstock.gateway.router import Target
from penstock.shared_memory.cuda import HANDLE_SIZE, CudaRegion
from penstock.shared_memory.registry import Regions
from penstock.shared_memory.system import SystemRegion


class SystemEndpoints:
    """Handlers of the paths below `/v2/systemsharedmemory`."""

    def __init__(self, regions: Regions, limit: int) -> None:
        self._regions = regions
        self._limit = limit

    async def status(self, _: Request, target: Target) -> ASGIApp:
        found = self._regions.status(SystemRegion, target.region)
        return json_reply(
            [
                {"name": r.name, "key": r.key, "offset": r.offset, "byte_size": r.byte_size}
                for r in found
            ]
        )

    async def register(self, request: Request, target: Target) -> ASGIApp:
        _check_named(target, "system")
        json = await _json(request, self._limit)
        key = as_string(_required_field(json, "key"))
        offset = member(json, "offset")
        offset = 0 if offset is ABSENT else as_unsigned(offset)
        byte_size = as_unsigned(_required_field(json, "byte_size"))
        self._regions.register_system(target.region, key, offset, byte_size)
        return reply()

    async def unregister(self, _: Request, target: Target) -> ASGIApp:
        self._regions.unregister(SystemRegion, target.region)
        return reply()


class CudaEndpoints:
    """Handlers of the paths below `/v2/cudasharedmemory`."""

    def __init__(self, regions: Regions, limit: int) -> None:
        self._regions = regions
        self._limit = limit

    async def status(self, _: Request, target: Target) -> ASGIApp:
        found = self._regions.status(CudaRegion, target.region)
        return json_reply(
            [{"name": r.name, "device_id": r.device, "byte_size": r.byte_size} for r in found]
        )

    async def register(self, request: Request, target: Target) -> ASGIApp:
        _check_named(target, "cuda")
        json = await _json(request, self._limit)
        encoded = as_string(required(_required_field(json, "raw_handle"), "b64", ""))
        device = as_unsigned(required(json, "device_id", ""))
        byte_size = as_unsigned(required(json, "byte_size", ""))
        self._regions.register_cuda(target.region, _handle(encoded), device, byte_size)
        return reply()

    async def unregister(self, _: Request, target: Target) -> ASGIApp:
        self._regions.unregister(CudaRegion, target.region)
        return reply()


def shared_slice(parameters: Any, regions: Regions) -> RegionSlice | None:
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


async def _json(request: Request, limit: int) -> Any:
    return parse(await read_body(request, limit))


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
