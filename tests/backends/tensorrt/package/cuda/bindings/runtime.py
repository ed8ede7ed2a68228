"""CUDA's runtime as the backend uses it, over memory of the host, with the rules of a GPU.

What is put on a stream is done only when somebody waits for it, and then no more than that, so an
event that nobody waits for, or memory that is read or used again too early, gives wrong answers.
Memory of the GPU has addresses that the host cannot read. `PENSTOCK_STAND_IN_GPU` is a JSON object:
`gpus` (1), `bytes` (1 GiB) and `capability` (`9.0`).
"""

# ruff: noqa: N801, N802, N803, N815, N816, N818

from __future__ import annotations

import ctypes
import itertools
import json
import os
import threading
from collections.abc import Callable
from enum import IntEnum
from typing import Any


class cudaError_t(IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorInvalidDevice = 101
    cudaErrorInvalidResourceHandle = 400
    cudaErrorIllegalAddress = 700
    cudaErrorStreamCaptureUnsupported = 900
    cudaErrorStreamCaptureInvalidated = 901


class cudaMemcpyKind(IntEnum):
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2


class cudaStreamCaptureMode(IntEnum):
    cudaStreamCaptureModeThreadLocal = 1


class cudaDeviceAttr(IntEnum):
    cudaDevAttrComputeCapabilityMajor = 75
    cudaDevAttrComputeCapabilityMinor = 76


cudaEventDefault, cudaEventBlockingSync, cudaEventDisableTiming = 0, 1, 2
cudaStreamNonBlocking = 1
cudaHostAllocDefault = 0

_OK = cudaError_t.cudaSuccess
_TEXTS = {
    cudaError_t.cudaErrorMemoryAllocation: "out of memory",
    cudaError_t.cudaErrorInvalidDevice: "invalid device ordinal",
    cudaError_t.cudaErrorIllegalAddress: "an illegal memory access was encountered",
    cudaError_t.cudaErrorStreamCaptureUnsupported: "the stream is capturing",
}
_FIRST = 0x7_0000_0000_0000
"""Addresses of the GPU: the host has none of these."""

Operation = Callable[[], None]


class Refused(Exception):
    def __init__(self, status: cudaError_t) -> None:
        super().__init__(_TEXTS.get(status, status.name))
        self.status = status


class Gpu:
    """All that is on the GPU."""

    def __init__(self) -> None:
        told = json.loads(os.environ.get("PENSTOCK_STAND_IN_GPU", "{}"))
        self.gpus: int = told.get("gpus", 1)
        self.most_bytes: int = told.get("bytes", 1 << 30)
        self.capability: str = told.get("capability", "9.0")
        self.lock = threading.RLock()
        self.memory: dict[int, bytearray] = {}
        self.pinned: dict[int, Any] = {}
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, Event] = {}
        self.graphs: dict[int, list[Operation]] = {}
        self.executables: dict[int, list[Operation]] = {}
        self.numbers = itertools.count(1)
        self.next_address = _FIRST
        self.calls: list[str] = []
        self.failure: cudaError_t | None = None
        """What fails every call, once the GPU has failed."""

    def left(self) -> dict[str, int]:
        """How much there is of what has to be given back."""
        kinds = ("memory", "pinned", "streams", "events", "graphs", "executables")
        return {kind: len(getattr(self, kind)) for kind in kinds if getattr(self, kind)}

    def bytes_at(self, address: int, size: int) -> memoryview:
        """Memory of the GPU from an address on."""
        for start, memory in self.memory.items():
            if start <= address and address + size <= start + len(memory):
                return memoryview(memory)[address - start : address - start + size]
        raise Refused(self._fail(cudaError_t.cudaErrorIllegalAddress))

    def _fail(self, status: cudaError_t) -> cudaError_t:
        self.failure = status  # as on a GPU, nothing works from now on
        return status


class Stream:
    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.waiting: list[Operation | Event | tuple[Event, int]] = []
        """Operations, events to happen, and events to wait for."""
        self.captured: list[Operation] | None = None

    def put(self, operation: Operation) -> None:
        if self.captured is not None:
            self.captured.append(operation)
        else:
            self.waiting.append(operation)

    def drain(self, until: Event | None = None) -> None:
        """Do what is there, up to an event."""
        while self.waiting:
            one = self.waiting.pop(0)
            if isinstance(one, Event):
                one.happened += 1
                if one is until and one.happened >= one.recorded:
                    return
            elif isinstance(one, tuple):
                event, count = one
                event.wait(count)
            else:
                one()


class Event:
    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.stream: Stream | None = None
        self.recorded = self.happened = 0

    def wait(self, count: int) -> None:
        while self.happened < count:
            assert self.stream is not None
            self.stream.drain(until=self)


gpu = Gpu()


def reset() -> None:
    """Another GPU, as new."""
    global gpu
    gpu = Gpu()


_device = threading.local()
_last = threading.local()
"""What failed on this thread last, of which TensorRT takes its own kernels to have failed."""


def _api(function: Callable[..., Any]) -> Callable[..., Any]:
    """A call whose refusal is its status, and that fails once the GPU has failed."""

    def call(*arguments: Any) -> tuple[Any, ...]:
        with gpu.lock:
            gpu.calls.append(function.__name__)
            try:
                if gpu.failure is not None and "Destroy" not in function.__name__:
                    raise Refused(gpu.failure)
                value = function(*arguments)
            except Refused as refused:
                _last.error = refused.status
                return (refused.status, None)
            return (
                (_OK,) if value is None else (_OK, *(value if type(value) is tuple else (value,)))
            )

    call.__wrapped__ = function  # type: ignore[attr-defined]
    return call


def _made(kind: str, handle: Any) -> Any:
    table = getattr(gpu, kind)
    if int(handle) not in table:
        raise Refused(cudaError_t.cudaErrorInvalidResourceHandle)
    return table[int(handle)]


def _new(kind: str, one: Any) -> int:
    if getattr(_device, "number", None) is None:
        raise Refused(cudaError_t.cudaErrorInvalidDevice)  # a thread that has not chosen one
    number = next(gpu.numbers)
    getattr(gpu, kind)[number] = one
    return number


def _gone(kind: str, handle: Any) -> None:
    _made(kind, handle)
    del getattr(gpu, kind)[int(handle)]


def cudaGetErrorString(error: cudaError_t) -> tuple[cudaError_t, bytes]:
    return _OK, _TEXTS.get(error, error.name).encode()


def cudaGetLastError() -> tuple[cudaError_t]:
    found, _last.error = getattr(_last, "error", _OK), _OK
    return (found,)


@_api
def cudaSetDevice(device: int) -> None:
    if not 0 <= device < gpu.gpus:
        raise Refused(cudaError_t.cudaErrorInvalidDevice)
    _device.number = device


@_api
def cudaDeviceGetAttribute(attr: cudaDeviceAttr, device: int) -> int:
    major, minor = gpu.capability.split(".")
    return int(major if attr is cudaDeviceAttr.cudaDevAttrComputeCapabilityMajor else minor)


@_api
def cudaDeviceGetStreamPriorityRange() -> tuple[int, int]:
    return 0, -5


@_api
def cudaStreamCreateWithPriority(flags: int, priority: int) -> int:
    return _new("streams", Stream(priority))


@_api
def cudaStreamDestroy(stream: Any) -> None:
    _gone("streams", stream)


@_api
def cudaStreamSynchronize(stream: Any) -> None:
    one = _made("streams", stream)
    if one.captured is not None:
        raise Refused(cudaError_t.cudaErrorStreamCaptureUnsupported)
    one.drain()


@_api
def cudaStreamWaitEvent(stream: Any, event: Any, flags: int) -> None:
    one = _made("events", event)
    _made("streams", stream).waiting.append((one, one.recorded))


@_api
def cudaEventCreateWithFlags(flags: int) -> int:
    return _new("events", Event(flags))


@_api
def cudaEventDestroy(event: Any) -> None:
    _gone("events", event)


@_api
def cudaEventRecord(event: Any, stream: Any) -> None:
    one, where = _made("events", event), _made("streams", stream)
    one.recorded, one.stream = one.recorded + 1, where
    where.waiting.append(one)


@_api
def cudaEventSynchronize(event: Any) -> None:
    one = _made("events", event)
    one.wait(one.recorded)


@_api
def cudaMalloc(size: int) -> int:
    if size <= 0:
        raise Refused(cudaError_t.cudaErrorInvalidValue)
    if sum(map(len, gpu.memory.values())) + size > gpu.most_bytes:
        raise Refused(cudaError_t.cudaErrorMemoryAllocation)
    address = gpu.next_address
    gpu.memory[address] = bytearray(b"\xab" * size)
    gpu.next_address += (size + 511) // 256 * 256
    return address


@_api
def cudaMemsetAsync(devPtr: int, value: int, count: int, stream: Any) -> None:
    gpu.bytes_at(devPtr, count)
    _made("streams", stream).put(lambda: _fill(devPtr, bytes([value]) * count))


@_api
def cudaFree(devPtr: Any) -> None:
    _gone("memory", devPtr)


@_api
def cudaHostAlloc(size: int, flags: int) -> int:
    whole = ctypes.create_string_buffer(size + 256)
    start = -ctypes.addressof(whole) % 256
    memory = (ctypes.c_char * size).from_buffer(whole, start)
    address = ctypes.addressof(memory)
    gpu.pinned[address] = memory
    return address


@_api
def cudaFreeHost(ptr: Any) -> None:
    _gone("pinned", ptr)


@_api
def cudaMemcpyAsync(dst: int, src: int, count: int, kind: cudaMemcpyKind, stream: Any) -> None:
    where = _made("streams", stream)
    if where.captured is not None:
        raise Refused(cudaError_t.cudaErrorStreamCaptureUnsupported)
    host = src if kind is cudaMemcpyKind.cudaMemcpyHostToDevice else dst
    if host >= _FIRST and host < gpu.next_address:
        raise Refused(cudaError_t.cudaErrorInvalidValue)
    if kind is cudaMemcpyKind.cudaMemcpyDeviceToHost:
        gpu.bytes_at(src, count)
        where.put(lambda: _write(dst, bytes(gpu.bytes_at(src, count))))
    elif _is_pinned(src, count):  # read when it is copied
        gpu.bytes_at(dst, count)
        where.put(lambda: _fill(dst, ctypes.string_at(src, count)))
    else:
        content = ctypes.string_at(src, count)
        where.put(lambda: _fill(dst, content))


def _is_pinned(address: int, size: int) -> bool:
    return any(
        start <= address and address + size <= start + len(memory)
        for start, memory in gpu.pinned.items()
    )


def _fill(address: int, content: bytes) -> None:
    gpu.bytes_at(address, len(content))[:] = content


def _write(address: int, content: bytes) -> None:
    ctypes.memmove(address, content, len(content))


@_api
def cudaStreamBeginCapture(stream: Any, mode: cudaStreamCaptureMode) -> None:
    _made("streams", stream).captured = []


@_api
def cudaStreamEndCapture(stream: Any) -> int:
    one = _made("streams", stream)
    captured, one.captured = one.captured, None
    if captured is None:
        raise Refused(cudaError_t.cudaErrorStreamCaptureInvalidated)
    return _new("graphs", captured)


@_api
def cudaGraphInstantiate(graph: Any, flags: int) -> int:
    return _new("executables", list(_made("graphs", graph)))


@_api
def cudaGraphDestroy(graph: Any) -> None:
    _gone("graphs", graph)


@_api
def cudaGraphExecDestroy(graphExec: Any) -> None:
    _gone("executables", graphExec)


@_api
def cudaGraphLaunch(graphExec: Any, stream: Any) -> None:
    where = _made("streams", stream)
    for operation in _made("executables", graphExec):
        where.put(operation)
