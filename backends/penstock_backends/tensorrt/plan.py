"""`Plan`: a plan as TensorRT has read it, its tensors, and the shapes of its profiles."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from penstock.backend import DataType, InstanceGroup, ModelConfig, ModelLoadError
from penstock_backends.tensor_models import GraphTensor
from penstock_backends.tensorrt.cuda import WITHOUT_GPU, CudaError, Device, installed
from penstock_backends.tensorrt.settings import TensorRtSettings

logger = logging.getLogger(__name__)

_DATATYPES = {
    "FLOAT": DataType.FP32,
    "HALF": DataType.FP16,
    "BF16": DataType.BF16,
    "INT8": DataType.INT8,
    "INT32": DataType.INT32,
    "INT64": DataType.INT64,
    "UINT8": DataType.UINT8,
    "BOOL": DataType.BOOL,
}
_LEVELS = (logging.ERROR, logging.ERROR, logging.WARNING, logging.DEBUG)
"""For the severities of TensorRT: internal error, error, warning and information."""
Shape = tuple[int, ...]

_reading = threading.Lock()
"""Held while an engine is made: TensorRT takes them one at a time, as Triton does."""


@dataclass(frozen=True, slots=True)
class PlanTensor:
    """An input or output; its `dims` are whole shapes, -1 for what profiles bound."""

    name: str
    datatype: DataType
    dims: Shape
    is_input: bool
    is_shape: bool
    """Whether it is a shape tensor: its values, on the host, are what shapes follow from."""
    is_linear: bool
    filled: int = -1
    """The dimension that is filled up to multiples of `components`, in some formats."""
    components: int = 1

    def stored(self, shape: Shape) -> Shape:
        """The shape of as many elements as a tensor of this shape has in memory."""
        if self.filled < 0:
            return shape
        whole = -(-self.dims[self.filled] // self.components) * self.components
        return (*shape[: self.filled], whole, *shape[self.filled + 1 :])

    def size(self, shape: Shape) -> int:
        """The bytes that a tensor of this shape takes."""
        return prod(self.stored(shape)) * self.datatype.itemsize

    def logical(self, stored: Shape) -> Shape:
        """The shape of a tensor that is stored as one of this shape."""
        if self.filled < 0:
            return stored
        return (*stored[: self.filled], self.dims[self.filled], *stored[self.filled + 1 :])

    def described(self, batched: bool) -> GraphTensor:
        """The tensor as a batch has it; a shape tensor has its values in each row."""
        dims = self.dims
        if batched:
            dims = (-1, *(length - 1 for length in dims)) if self.is_shape else (-1, *dims[1:])
        return GraphTensor(self.name, self.datatype, dims, self.is_shape, self.is_linear)


@dataclass(frozen=True, slots=True)
class Profile:
    """An optimisation profile: the least, the best and the greatest shapes of inputs.

    Of shape tensors, the same of their values.
    """

    name: str
    index: int
    ranges: Mapping[str, tuple[Shape, Shape, Shape]]

    def misfit(self, asked: Mapping[str, Shape], shape_tensors: frozenset[str]) -> str:
        """Why the profile does not support these shapes and values; empty if it does."""
        for name, given in asked.items():
            least, _, greatest = self.ranges[name]
            if len(given) != len(least):
                what = "shape values" if name in shape_tensors else "dimensions"
                return f"'{name}': model expected {len(least)} {what} but received {len(given)}"
            for at, (low, one, high) in enumerate(zip(least, given, greatest, strict=True)):
                if not low <= one <= high:
                    what = "shape value at index" if name in shape_tensors else "shape of dimension"
                    return (
                        f"'{name}': model expected the {what} {at} to be between {low} and {high}"
                        f" but received {one}"
                    )
        return ""

    def distance(self, asked: Mapping[str, Shape]) -> int:
        """How far shapes and values are from those that the profile is optimised for."""
        return sum(
            abs(best - one)
            for name, given in asked.items()
            for best, one in zip(self.ranges[name][1], given, strict=True)
        )


class Plan:
    """An engine of TensorRT on one GPU, or on a core of its accelerator for deep learning.

    Its contexts may run side by side, so the instances on a GPU share it.
    """

    def __init__(self, engine: Any, model: str) -> None:
        self.engine = engine
        self._model = model
        names = [engine.get_tensor_name(at) for at in range(engine.num_io_tensors)]
        self.tensors = {name: _tensor(engine, name) for name in names}
        self.inputs = {name: one for name, one in self.tensors.items() if one.is_input}
        self.shape_tensors = frozenset(n for n, one in self.tensors.items() if one.is_shape)

    @classmethod
    def read(
        cls, config: ModelConfig, path: Path, number: int, core: int, settings: TensorRtSettings
    ) -> Plan:
        """Read a file for a GPU, and a DLA core unless that is -1; raises `ModelLoadError`."""
        use_gpu(config.name, number)
        with _reading:
            return cls(_engine(path, core, settings), config.name)

    def profiles(self, names: Sequence[str]) -> list[Profile]:
        """The profiles of these numbers, or the first; raises `ModelLoadError`."""
        found: dict[int, Profile] = {}
        for name in names or ("default",):
            index = int(name) if name.isdecimal() else 0 if not names else -1
            if index < 0:
                raise ModelLoadError(f"unable to parse '{name}': a profile is a number")
            if index >= self.engine.num_optimization_profiles:
                raise ModelLoadError(
                    f"model '{self._model}', configuration specified invalid profile {name} ."
                    " Number of profiles supported by TensorRT engine:"
                    f" {self.engine.num_optimization_profiles}"
                )
            found.setdefault(index, Profile(name, index, dict(self._ranges(index))))
        return [*found.values()]

    def _ranges(self, index: int) -> Iterator[tuple[str, tuple[Shape, Shape, Shape]]]:
        for name, tensor in self.inputs.items():
            if tensor.is_shape:
                values = self.engine.get_tensor_profile_values(name, index)
            elif min(tensor.dims, default=0) >= 0:
                values = [tensor.dims] * 3
            else:
                values = self.engine.get_tensor_profile_shape(name, index)
            least, best, greatest = (tuple(map(int, each)) for each in values)
            yield name, (least, best, greatest)

    def rows(self, groups: Sequence[InstanceGroup]) -> range:
        """The batches that the profiles of the instance groups take; none where one is a scalar."""
        names = [*dict.fromkeys(name for group in groups for name in group.profile)]
        if not all(tensor.dims for tensor in self.tensors.values()):
            return range(0)
        least, most = [], []
        for profile in self.profiles(names):
            least.append(max((low[0] for low, _, _ in profile.ranges.values()), default=0))
            most.append(min((high[0] for _, _, high in profile.ranges.values()), default=0))
        return range(min(least), max(most) + 1)


def _engine(path: Path, core: int, settings: TensorRtSettings) -> Any:
    """The engine in a file; raises `ModelLoadError`."""
    trt, log = installed("tensorrt"), runtime_log()
    for library in ("", *settings.plugins):
        _load_plugins(library)
    runtime = trt.Runtime(log)
    if settings.version_compatible:
        runtime.engine_host_code_allowed = True
    if core >= 0:
        if core >= runtime.num_DLA_cores:
            raise ModelLoadError(
                f"unable to create TensorRT runtime with DLA Core ID: {core}, available number"
                f" of DLA cores: {runtime.num_DLA_cores}"
            )
        runtime.DLA_core = core
    if not (content := path.read_bytes()):
        raise ModelLoadError(f"unable to create TensorRT engine: '{path}' is empty")
    engine = runtime.deserialize_cuda_engine(content)
    if engine is None:
        raise ModelLoadError(
            f"unable to create TensorRT engine: {log.last_error()}; '{path}' must be a plan"
            f" for this GPU, built with TensorRT {trt.__version__}, or built"
            " version-compatible and allowed by --backend-config=tensorrt,version-compatible="
            "true"
        )
    return engine


def _tensor(engine: Any, name: str) -> PlanTensor:
    trt = installed("tensorrt")
    kind = engine.get_tensor_dtype(name)
    if kind.name not in _DATATYPES:
        raise ModelLoadError(f"tensor '{name}' is of type {kind.name}, which cannot be served")
    dims = tuple(map(int, engine.get_tensor_shape(name)))
    is_linear = engine.get_tensor_format(name) == trt.TensorFormat.LINEAR
    filled = -1 if is_linear else int(engine.get_tensor_vectorized_dim(name))
    if filled >= 0 and dims[filled] < 0:
        raise ModelLoadError(
            f"tensor '{name}' has a format that fills up its dimension {filled}, which must be"
            " fixed then"
        )
    return PlanTensor(
        name,
        _DATATYPES[kind.name],
        dims,
        is_input=engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT,
        is_shape=bool(engine.is_shape_inference_io(name)),
        is_linear=is_linear,
        filled=filled,
        components=int(engine.get_tensor_components_per_element(name)) if filled >= 0 else 1,
    )


def use_gpu(model: str, number: int) -> Device:
    """A GPU by its number; raises `ModelLoadError` where there is none."""
    try:
        return Device(number)
    except CudaError as error:
        raise ModelLoadError(
            f"model '{model}': TensorRT runs on GPUs of NVIDIA only, and GPU {number} cannot be"
            f" used: {error}; {WITHOUT_GPU}"
        ) from error


@cache
def _load_plugins(path: str) -> None:
    """Register the plugins of a library, or TensorRT's own, once for the process."""
    trt = installed("tensorrt")
    if not path:
        trt.init_libnvinfer_plugins(runtime_log(), "")
        return
    try:
        library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ModelLoadError(f"backend-config plugins: {error}") from error
    # Older libraries register their plugins when they are loaded, others export them.
    if hasattr(library, "getCreators") or hasattr(library, "getPluginCreators"):
        trt.get_plugin_registry().load_library(path)


@cache
def runtime_log() -> Any:
    """The log of TensorRT, which takes one for the whole process."""
    trt = installed("tensorrt")

    class Log(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self._last = threading.local()

        def log(self, severity: Any, msg: str) -> None:
            if severity == trt.ILogger.VERBOSE:  # only developers of TensorRT want to know
                return
            level = _LEVELS[int(severity)]
            if level == logging.ERROR:
                self._last.error = msg
            logger.log(level, "%s", msg)

        def last_error(self) -> str:
            """The error on this thread since the last call, if any."""
            found, self._last.error = getattr(self._last, "error", ""), ""
            return found or "no reason was given"

    return Log()
