"""A stand-in for TensorRT 11.4: the API that the backend uses, with its rules, and small networks.

A plan is a line `stand-in plan`, and a JSON object that `plans.py` writes. What breaks a rule of
the API, which with TensorRT may do anything, is an error here: it is logged, and the call fails.
"""

# ruff: noqa: N802, N818

from __future__ import annotations

import ctypes
import json
import sys
import threading
from collections.abc import Callable, Mapping
from enum import IntEnum
from math import prod
from typing import Any

import numpy as np
from cuda.bindings import runtime as cuda

__version__ = "11.4.0.106"
MAGIC = b"stand-in plan\n"


class DataType(IntEnum):
    FLOAT = 0
    HALF = 1
    INT8 = 2
    INT32 = 3
    BOOL = 4
    UINT8 = 5
    FP8 = 6
    BF16 = 7
    INT64 = 8


class TensorIOMode(IntEnum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorFormat(IntEnum):
    LINEAR = 0
    CHW4 = 3
    HWC = 8


class ExecutionContextAllocationStrategy(IntEnum):
    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class _Severity(IntEnum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class ILogger:
    Severity = _Severity
    INTERNAL_ERROR = _Severity.INTERNAL_ERROR
    ERROR = _Severity.ERROR
    WARNING = _Severity.WARNING
    INFO = _Severity.INFO
    VERBOSE = _Severity.VERBOSE

    def __init__(self) -> None:
        self._ready = True

    def log(self, severity: _Severity, msg: str) -> None:
        raise NotImplementedError


class IOutputAllocator:
    def __init__(self) -> None:
        self._ready = True


class IPluginRegistry:
    def __init__(self) -> None:
        self._libraries: list[str] = []

    def load_library(self, plugin_path: str) -> object:
        self._libraries.append(plugin_path)
        return object()


_registry = IPluginRegistry()
_plugins: list[str] = []


def get_plugin_registry() -> IPluginRegistry:
    return _registry


def init_libnvinfer_plugins(logger: Any, namespace: str) -> bool:
    _plugins.append(namespace)
    return True


class Runtime:
    _dla_cores = 2

    def __init__(self, logger: ILogger) -> None:
        assert logger._ready, "the base class of a logger has to be initialised"
        self._logger = logger
        self.engine_host_code_allowed = False
        self._core = -1
        logger.log(ILogger.VERBOSE, "made")

    @property
    def num_DLA_cores(self) -> int:
        return self._dla_cores

    @property
    def DLA_core(self) -> int:
        return self._core

    @DLA_core.setter
    def DLA_core(self, core: int) -> None:
        self._core = core

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> ICudaEngine | None:
        content = bytes(serialized_engine)
        try:
            if not content.startswith(MAGIC):
                raise ValueError("Serialization assertion magicTagRead == kMAGIC_TAG failed.")
            plan = json.loads(content.removeprefix(MAGIC))
            if plan["version"] != __version__ and not (
                plan.get("compatible") and self.engine_host_code_allowed
            ):
                raise ValueError(
                    "Version tag does not match. Note: Current Version: 11.4, Serialized Engine"
                    f" Version: {plan['version']}"
                )
        except ValueError as error:
            self._logger.log(ILogger.ERROR, f"IRuntime::deserializeCudaEngine: {error}")
            return None
        return ICudaEngine(plan, self._logger)


class ICudaEngine:
    def __init__(self, plan: Mapping[str, Any], logger: ILogger) -> None:
        self._plan, self._logger = plan, logger
        self._tensors: dict[str, Any] = {one["name"]: one for one in plan["tensors"]}

    @property
    def num_io_tensors(self) -> int:
        return len(self._tensors)

    @property
    def num_optimization_profiles(self) -> int:
        return len(self._plan["profiles"])

    def get_tensor_name(self, index: int) -> str:
        return [*self._tensors][index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if self._tensors[name]["input"] else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[self._tensors[name]["dtype"]]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name]["dims"])

    def get_tensor_format(self, name: str) -> TensorFormat:
        return TensorFormat[self._tensors[name].get("format", "LINEAR")]

    def get_tensor_vectorized_dim(self, name: str) -> int:
        return 1 if self.get_tensor_format(name) is TensorFormat.CHW4 else -1

    def get_tensor_components_per_element(self, name: str) -> int:
        return 4 if self.get_tensor_format(name) is TensorFormat.CHW4 else -1

    def is_shape_inference_io(self, name: str) -> bool:
        return bool(self._tensors[name].get("shape_tensor"))

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[tuple[int, ...]]:
        if self._tensors[name].get("shape_tensor"):
            return [tuple(self._tensors[name]["dims"])] * 3
        return [tuple(shape) for shape in self._plan["profiles"][profile_index][name]]

    def get_tensor_profile_values(self, name: str, profile_index: int) -> list[list[int]]:
        if not self._tensors[name].get("shape_tensor"):
            raise RuntimeError(f"{name} is no shape tensor")
        values: list[list[int]] = self._plan["profiles"][profile_index][name]
        return values

    def create_execution_context(
        self,
        strategy: ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy.STATIC,
    ) -> IExecutionContext:
        return IExecutionContext(self, strategy)


_TYPES = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "INT8": np.int8,
    "INT32": np.int32,
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "BF16": np.uint16,
    "INT64": np.int64,
}


class Broken(Exception):
    """A rule of the API is broken."""


def _checked(function: Callable[..., bool]) -> Callable[..., bool]:
    """A call whose error is logged; a context is for one thread at a time."""

    def call(self: IExecutionContext, *arguments: Any) -> bool:
        if not self._busy.acquire(blocking=False):
            self._engine._logger.log(ILogger.ERROR, "the context is in use by another thread")
            return False
        try:
            return function(self, *arguments)
        except (Broken, cuda.Refused) as error:
            self._engine._logger.log(ILogger.ERROR, f"IExecutionContext: {error}")
            return False
        finally:
            self._busy.release()

    call.__wrapped__ = function  # type: ignore[attr-defined]
    return call


class IExecutionContext:
    def __init__(self, engine: ICudaEngine, strategy: ExecutionContextAllocationStrategy) -> None:
        self._engine, self._strategy = engine, strategy
        self._profile = 0
        self._switched_on: int | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._allocators: dict[str, Any] = {}
        self._set_up: set[Any] = set()
        self._in_flight: list[int] = []
        self._busy = threading.Lock()
        for name, tensor in engine._tensors.items():
            if tensor["input"] and min(tensor["dims"], default=0) >= 0:
                self._shapes[name] = tuple(tensor["dims"])

    @_checked
    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        if not 0 <= profile_index < self._engine.num_optimization_profiles:
            raise Broken(f"there is no profile {profile_index}")
        self._profile, self._switched_on = profile_index, stream_handle
        return True

    @_checked
    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        tensor = self._engine._tensors[name]
        if not tensor["input"] or tensor.get("shape_tensor"):
            raise Broken(f"{name} has no shape that is set")
        least, _, most = self._engine.get_tensor_profile_shape(name, self._profile)
        if len(shape) != len(least) or any(
            not low <= one <= high for low, one, high in zip(least, shape, most, strict=True)
        ):
            raise Broken(f"{name} {tuple(shape)} is not between {least} and {most}")
        self._shapes[name] = tuple(shape)
        return True

    @_checked
    def set_tensor_address(self, name: str, memory: int) -> bool:
        if name not in self._engine._tensors or not memory:
            raise Broken(f"{name} gets no address")
        if memory % 256:
            raise Broken(f"the address of {name} is not aligned")
        self._addresses[name] = memory
        return True

    @_checked
    def set_output_allocator(self, name: str, output_allocator: IOutputAllocator) -> bool:
        assert output_allocator._ready, "the base class of an allocator has to be initialised"
        self._allocators[name] = output_allocator
        return True

    def infer_shapes(self) -> list[str]:
        missing = []
        for name, tensor in self._engine._tensors.items():
            if tensor["input"] and tensor.get("shape_tensor"):
                missing += [name] if name not in self._addresses else []
            elif tensor["input"]:
                missing += [name] if name not in self._shapes else []
        return missing

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        tensor = self._engine._tensors[name]
        if tensor["input"]:
            return self._shapes[name]
        if tensor.get("shape_tensor"):
            return tuple(tensor["dims"])
        shape: tuple[int, ...] = self._network().shape(self._shapes, self._values())
        return shape

    def get_max_output_size(self, name: str) -> int:
        ranges = self._engine._plan["profiles"][self._profile]
        most = {name: tuple(values[2]) for name, values in ranges.items()}
        shape = self._network().shape(most, most)
        shape = tuple(abs(length) * 16 if length < 0 else length for length in shape)
        tensor = self._engine._tensors[name]
        return _bytes(tensor, shape)

    @_checked
    def execute_async_v3(self, stream_handle: int) -> bool:
        stream = cuda._made("streams", stream_handle)
        (failed,) = cuda.cudaGetLastError()
        if failed:  # as after its own kernels
            raise cuda.Refused(failed)
        self._check_set(stream_handle)
        shapes, values = dict(self._shapes), self._values()
        self._check_values(values)
        made = (self._profile, tuple(sorted(shapes.items())))
        if stream.captured is not None and made not in self._set_up:
            raise Broken("what is captured has to have run before")
        self._set_up.add(made)
        addresses, network = dict(self._addresses), self._network()
        self._check_memory(network, shapes, values)
        if self._allocators:
            with cuda.gpu.lock:
                stream.drain()  # shapes follow from values
                self._allocate(network, shapes, addresses, values)
        stream.put(lambda: self._compute(network, shapes, addresses, values))
        return True

    def _check_set(self, stream_handle: int) -> None:
        if self._switched_on not in (None, stream_handle):
            raise Broken("the profile was set on another stream, which nobody has waited for")
        if missing := self.infer_shapes():
            raise Broken(f"not specified: {missing}")
        for name in self._engine._tensors:
            if name not in self._addresses and name not in self._allocators:
                raise Broken(f"{name} has no address")

    def _check_memory(self, network: Any, shapes: Any, values: Any) -> None:
        """All memory is there, and large enough."""
        for name, tensor in self._engine._tensors.items():
            if not tensor.get("shape_tensor") and name not in self._allocators:
                shape = shapes[name] if tensor["input"] else network.shape(shapes, values)
                cuda.gpu.bytes_at(self._addresses[name], _bytes(tensor, shape))

    def _check_values(self, values: Mapping[str, tuple[int, ...]]) -> None:
        for name, given in values.items():
            least, _, most = self._engine.get_tensor_profile_values(name, self._profile)
            if any(not lo <= one <= hi for lo, one, hi in zip(least, given, most, strict=True)):
                raise Broken(f"values {given} of {name} are not between {least} and {most}")

    def _values(self) -> dict[str, tuple[int, ...]]:
        """Of shape tensors, which are read on the host, now."""
        found = {}
        for name, tensor in self._engine._tensors.items():
            if tensor.get("shape_tensor") and tensor["input"] and name in self._addresses:
                dtype = np.dtype(_TYPES[tensor["dtype"]])
                size = prod(tensor["dims"]) * dtype.itemsize
                content = ctypes.string_at(self._addresses[name], size)
                found[name] = tuple(np.frombuffer(content, dtype).tolist())
        return found

    def _network(self) -> Any:
        from tensorrt.networks import NETWORKS

        return NETWORKS[self._engine._plan["network"]]

    def _read(self, addresses: Mapping[str, int], shapes: Mapping[str, Any]) -> dict[str, Any]:
        arrays = {}
        for name, tensor in self._engine._tensors.items():
            if tensor["input"] and not tensor.get("shape_tensor"):
                content = bytes(cuda.gpu.bytes_at(addresses[name], _bytes(tensor, shapes[name])))
                arrays[name] = _unpacked(tensor, content, shapes[name])
        return arrays

    def _allocate(self, network: Any, shapes: Any, addresses: Any, values: Any) -> None:
        result = network.run(self._read(addresses, shapes), values)
        for name, allocator in self._allocators.items():
            size = result[name].nbytes
            addresses[name] = _allocated(allocator, name, max(size, 1))
            allocator.notify_shape(name, result[name].shape)
            self._addresses[name] = addresses[name]

    def _compute(self, network: Any, shapes: Any, addresses: Any, values: Any) -> None:
        for name, array in network.run(self._read(addresses, shapes), values).items():
            tensor = self._engine._tensors[name]
            content = _packed(tensor, array)
            if tensor.get("shape_tensor"):
                ctypes.memmove(addresses[name], content, len(content))
            else:
                cuda.gpu.bytes_at(addresses[name], len(content))[:] = content


def _allocated(allocator: Any, name: str, size: int) -> int:
    try:
        address: int = allocator.reallocate_output_async(name, 0, size, 256, 1)
    except Exception as error:  # C++ is told of none
        print(f"[ERROR] Exception caught in reallocateOutputAsync(): {error}", file=sys.stderr)
        address = 0
    if not address:
        raise Broken(f"{name} has no memory")
    return address


def _bytes(tensor: Any, shape: tuple[int, ...]) -> int:
    if tensor.get("format") == "CHW4":
        shape = (shape[0], -(-shape[1] // 4) * 4, *shape[2:])
    return int(prod(shape) * np.dtype(_TYPES[tensor["dtype"]]).itemsize)


def _unpacked(tensor: Any, content: bytes, shape: tuple[int, ...]) -> Any:
    array: Any = np.frombuffer(content, _TYPES[tensor["dtype"]])
    if tensor.get("format") == "CHW4":
        rows, channels, height, width = shape
        array = array.reshape(rows, -1, height, width, 4).transpose(0, 1, 4, 2, 3)
        return array.reshape(rows, -1, height, width)[:, :channels]
    return array.reshape(shape)


def _packed(tensor: Any, array: Any) -> bytes:
    array = np.ascontiguousarray(array, _TYPES[tensor["dtype"]])
    if tensor.get("format") == "CHW4":
        rows, channels, height, width = array.shape
        filled = np.zeros((rows, -(-channels // 4) * 4, height, width), array.dtype)
        filled[:, :channels] = array
        array = filled.reshape(rows, -1, 4, height, width).transpose(0, 1, 3, 4, 2)
    content: bytes = array.tobytes()
    return content
