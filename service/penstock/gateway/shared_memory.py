"""Client shared memory over HTTP: its endpoints, and tensor parameters (H-17 to H-22)."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.core.buffer import Buffer
from penstock.core.errors import InvalidRequestError
from penstock.core.region import Region, RegionSlice
from penstock.core.request import InferenceRequest
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.json.fields import ABSENT, as_string, as_unsigned, member, required, unable
from penstock.gateway.json_bodies import JsonBodies
from penstock.gateway.replies import Reply, json_reply, reply
from penstock.gateway.router import Target
from penstock.shared_memory.cuda import HANDLE_SIZE, CudaRegion
from penstock.shared_memory.registry import Regions, check_slice
from penstock.shared_memory.system import SystemRegion
from penstock.shared_memory.tensors import tensor_in


class RegionSlices(Protocol):
    """Look-up of slices of regions: `Regions`, or `RemoteRegions` for another process."""

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


@dataclass(frozen=True, slots=True)
class RemoteRegions:
    """The sizes of the regions, for a process that has none of them: it decodes their names."""

    sizes: Mapping[str, int]

    def slice(self, name: str, offset: int, size: int) -> RegionSlice:
        """As `Regions.slice`, without the memory: for `with_regions`."""
        check_slice(name, self.sizes.get(name), offset, size)
        return RemoteSlice(name, offset, size)


class RemoteSlice(RegionSlice):
    """A slice that is known by the name of its region."""

    def __init__(self, name: str, offset: int, size: int) -> None:
        super().__init__(_NamedRegion(0, name, 0), offset, size)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteSlice, (self.region.name, self.offset, self.size)

    def read(self) -> Buffer:
        return b""

    def write(self, data: Buffer) -> None:
        raise NotImplementedError("the process that decodes JSON has no memory of clients")


class _NamedRegion(Region):
    def slice(self, offset: int, size: int) -> RegionSlice:
        return RemoteSlice(self.name, offset, size)


def with_regions(request: InferenceRequest, regions: RegionSlices) -> InferenceRequest:
    """A request with the memory that its remote slices stand for."""

    def here(place: RegionSlice) -> RegionSlice:
        return regions.slice(place.region.name, place.offset, place.size)

    inputs = {
        name: tensor
        if tensor.shared is None
        else tensor_in(here(tensor.shared), tensor.datatype, tensor.shape)
        for name, tensor in request.inputs.items()
    }
    places = {name: here(place) for name, place in request.output_places.items()}
    return request._replace(inputs=inputs, output_places=places)


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
