"""Shared memory over gRPC: the RPCs, and the parameters of tensors (GP-11, GP-12)."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message

from penstock.core.errors import InvalidRequestError
from penstock.core.region import RegionSlice
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import RpcContext
from penstock.shared_memory.cuda import CudaRegion
from penstock.shared_memory.registry import Regions
from penstock.shared_memory.system import SystemRegion

REGION = "shared_memory_region"
_OFFSET = "shared_memory_offset"
_SIZE = "shared_memory_byte_size"


class SharedMemoryMethods:
    """Handlers that register, unregister and list regions (G-14 to G-19)."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    async def SystemSharedMemoryStatus(
        self, message: pb.SystemSharedMemoryStatusRequest, _: RpcContext
    ) -> Message:
        status = pb.SystemSharedMemoryStatusResponse.RegionStatus
        return pb.SystemSharedMemoryStatusResponse(
            regions={
                r.name: status(name=r.name, key=r.key, offset=r.offset, byte_size=r.byte_size)
                for r in self._regions.status(SystemRegion, message.name)
            }
        )

    async def SystemSharedMemoryRegister(
        self, message: pb.SystemSharedMemoryRegisterRequest, _: RpcContext
    ) -> Message:
        self._regions.register_system(message.name, message.key, message.offset, message.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    async def SystemSharedMemoryUnregister(
        self, message: pb.SystemSharedMemoryUnregisterRequest, _: RpcContext
    ) -> Message:
        self._regions.unregister(SystemRegion, message.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    async def CudaSharedMemoryStatus(
        self, message: pb.CudaSharedMemoryStatusRequest, _: RpcContext
    ) -> Message:
        status = pb.CudaSharedMemoryStatusResponse.RegionStatus
        return pb.CudaSharedMemoryStatusResponse(
            regions={
                r.name: status(name=r.name, device_id=r.device, byte_size=r.byte_size)
                for r in self._regions.status(CudaRegion, message.name)
            }
        )

    async def CudaSharedMemoryRegister(
        self, message: pb.CudaSharedMemoryRegisterRequest, _: RpcContext
    ) -> Message:
        self._regions.register_cuda(
            message.name, message.raw_handle, message.device_id, message.byte_size
        )
        return pb.CudaSharedMemoryRegisterResponse()

    async def CudaSharedMemoryUnregister(
        self, message: pb.CudaSharedMemoryUnregisterRequest, _: RpcContext
    ) -> Message:
        self._regions.unregister(CudaRegion, message.name)
        return pb.CudaSharedMemoryUnregisterResponse()


def shared_slice(
    tensor: str, parameters: Mapping[str, pb.InferParameter], regions: Regions
) -> RegionSlice | None:
    """The slice of shared memory that a tensor's parameters name; `None` if they name none."""
    if REGION not in parameters:
        for key in (_OFFSET, _SIZE):
            if key in parameters:
                raise InvalidRequestError(
                    f"'{key}' can not be specified without '{REGION}' parameter"
                    f" for tensor '{tensor}'"
                )
        return None
    region = parameters[REGION]
    _check_kind(tensor, REGION, region, "string_param")
    offset = _number(tensor, _OFFSET, parameters) if _OFFSET in parameters else 0
    if _SIZE not in parameters:
        raise InvalidRequestError(
            f"'{_SIZE}' must be specified along with '{REGION}' parameter for tensor '{tensor}'"
        )
    return regions.slice(region.string_param, offset, _number(tensor, _SIZE, parameters))


def _number(tensor: str, key: str, parameters: Mapping[str, pb.InferParameter]) -> int:
    _check_kind(tensor, key, parameters[key], "int64_param")
    return parameters[key].int64_param


def _check_kind(tensor: str, key: str, parameter: pb.InferParameter, expected: str) -> None:
    if parameter.WhichOneof("parameter_choice") != expected:
        raise InvalidRequestError(
            f"invalid value type for '{key}' parameter for tensor '{tensor}', expected {expected}."
        )
