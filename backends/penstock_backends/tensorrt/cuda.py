"""`Device`: the memory, streams, events and graphs of one GPU, through CUDA's own bindings."""

from __future__ import annotations

import ctypes
import importlib
import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from penstock.backend import Array, BackendNotInstalledError

logger = logging.getLogger(__name__)

WITHOUT_GPU = (
    "without a GPU, serve the ONNX model that the plan was built of with backend 'onnxruntime'"
)
"""Advice where plans do not run."""


NOT_INSTALLED = (
    "the tensorrt backend needs packages that are not installed, and a GPU of NVIDIA; install them"
    " with: pip install 'penstock[tensorrt]'"
)


def installed(package: str) -> Any:
    """A package of NVIDIA's; raises `BackendNotInstalledError`."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise BackendNotInstalledError(f"{NOT_INSTALLED} ({error}); {WITHOUT_GPU}") from error


class CudaError(Exception):
    """A call to CUDA failed; the text is CUDA's own."""


class Device:
    """A GPU, and all that is made on it until `close`; every call raises `CudaError`.

    Streams and events are CUDA's handles, addresses are numbers. Calls that follow `use` on a
    thread are for this GPU.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._cuda = installed("cuda.bindings.runtime")
        self._made = ExitStack()
        self.use()

    def use(self) -> None:
        """Make the GPU that of the thread."""
        self._call("cudaSetDevice", self.number)

    @property
    def capability(self) -> str:
        """The compute capability, such as `9.0`."""
        kinds = self._cuda.cudaDeviceAttr
        parts = (kinds.cudaDevAttrComputeCapabilityMajor, kinds.cudaDevAttrComputeCapabilityMinor)
        return ".".join(
            str(self._call("cudaDeviceGetAttribute", part, self.number)) for part in parts
        )

    def stream(self, priority: str) -> Any:
        """A stream of the priority that the configuration names."""
        least, greatest = self._call("cudaDeviceGetStreamPriorityRange")
        number = {"PRIORITY_MAX": greatest, "PRIORITY_MIN": least}.get(priority, 0)
        flags = self._cuda.cudaStreamNonBlocking
        return self._made_by("cudaStreamDestroy", "cudaStreamCreateWithPriority", flags, number)

    def event(self, busy_wait: bool) -> Any:
        """An event; who waits for it spins, or sleeps."""
        waits = self._cuda.cudaEventDefault if busy_wait else self._cuda.cudaEventBlockingSync
        flags = waits | self._cuda.cudaEventDisableTiming
        return self._made_by("cudaEventDestroy", "cudaEventCreateWithFlags", flags)

    def memory(self, size: int, stream: Any = None) -> int:
        """The address of new memory of the GPU; zeros, once the stream has got there."""
        address = int(self._made_by("cudaFree", "cudaMalloc", size))
        if stream is not None:
            self._call("cudaMemsetAsync", address, 0, size, stream)
        return address

    def pinned(self, size: int) -> Array:
        """New memory of the host that the GPU copies from and to at full speed."""
        flags = self._cuda.cudaHostAllocDefault
        address = int(self._made_by("cudaFreeHost", "cudaHostAlloc", size, flags))
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def copy_in(self, address: int, array: Array, stream: Any) -> None:
        """Copy an array, which is contiguous, to the GPU behind what the stream has to do."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._call("cudaMemcpyAsync", address, address_of(array), array.nbytes, kind, stream)

    def copy_out(self, array: Array, address: int, stream: Any) -> None:
        """Copy from the GPU to an array, behind what the stream has to do."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._call("cudaMemcpyAsync", address_of(array), address, array.nbytes, kind, stream)

    def record(self, event: Any, stream: Any) -> None:
        """Have the event happen when the stream gets there."""
        self._call("cudaEventRecord", event, stream)

    def wait(self, stream: Any, event: Any) -> None:
        """Have the stream wait for the event."""
        self._call("cudaStreamWaitEvent", stream, event, 0)

    def wait_for(self, event: Any) -> None:
        """Wait until the event has happened."""
        self._call("cudaEventSynchronize", event)

    def drain(self, stream: Any) -> None:
        """Wait until the stream has done all."""
        self._call("cudaStreamSynchronize", stream)

    def captured(self, stream: Any, launch: Callable[[], None]) -> Any:
        """A graph of what `launch` puts on the stream, which is not executed meanwhile."""
        # Other threads may use CUDA meanwhile.
        mode = self._cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self._call("cudaStreamBeginCapture", stream, mode)
        with ExitStack() as made:
            try:
                launch()
            finally:
                graph = self._call("cudaStreamEndCapture", stream)
                made.callback(self._destroy, "cudaGraphDestroy", graph)
            return self._made_by("cudaGraphExecDestroy", "cudaGraphInstantiate", graph, 0)

    def launch(self, graph: Any, stream: Any) -> None:
        """Launch a graph on the stream."""
        self._call("cudaGraphLaunch", graph, stream)

    def close(self) -> None:
        """Give back all that was made, the last first; what fails is logged."""
        self._made.callback(self._destroy, "cudaSetDevice", self.number)
        self._made.close()

    def _made_by(self, destroy: str, create: str, *arguments: Any) -> Any:
        made = self._call(create, *arguments)
        self._made.callback(self._destroy, destroy, made)
        return made

    def _destroy(self, name: str, made: Any) -> None:
        try:
            self._call(name, made)
        except CudaError as error:  # a GPU that has failed fails here, too
            logger.error("%s on GPU %s: %s", name, self.number, error)

    def _call(self, name: str, *arguments: Any) -> Any:
        """The result of a function of CUDA, besides its status."""
        status, *values = getattr(self._cuda, name)(*arguments)
        if int(status):
            self._cuda.cudaGetLastError()  # or TensorRT takes it for one of its own next call
            _, text = self._cuda.cudaGetErrorString(status)
            raise CudaError(text.decode())
        return values[0] if len(values) == 1 else values


def address_of(array: Array) -> int:
    """Where the elements of an array are."""
    address: int = array.__array_interface__["data"][0]
    return address
