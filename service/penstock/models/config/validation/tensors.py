"""Rules about inputs and outputs: names, datatypes, dimensions and reshapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.core.config import (
    BatchInput,
    BatchOutput,
    ModelConfig,
    ModelInput,
    ModelOutput,
    TensorFormat,
)
from penstock.core.config.schema import NO_DATATYPE
from penstock.core.tensor import DataType

ANY = -1
"""A variable-size dimension."""

_SHAPES = "must be integer >= 1, or -1 to indicate a variable-size dimension"


def tensor_problems(config: ModelConfig) -> Iterator[str]:
    """Problems of single inputs and outputs. Names may repeat: Triton loads such models."""
    tensors: tuple[ModelInput | ModelOutput, ...] = (*config.input, *config.output)
    for tensor in tensors:
        for problem in _problems(tensor, config):
            yield f"{problem} for {config.name}"


def _problems(tensor: ModelInput | ModelOutput, config: ModelConfig) -> Iterator[str]:
    what = "model input" if isinstance(tensor, ModelInput) else "model output"
    if not tensor.name:
        yield f"{what} must specify 'name'"
    for problem in (*_shape_problems(tensor, config), *_reshape_problems(tensor)):
        yield f"{what} '{tensor.name}' {problem}"
    if _is_image(tensor) and len(tensor.dims) != 3:
        yield "model input NHWC/NCHW require 3 dims"
    yield from _layout_problems(tensor, config.platform)


def _is_image(tensor: ModelInput | ModelOutput) -> bool:
    return isinstance(tensor, ModelInput) and tensor.format is not TensorFormat.FORMAT_NONE


def _shape_problems(tensor: ModelInput | ModelOutput, config: ModelConfig) -> Iterator[str]:
    if tensor.data_type is None:
        yield "must specify 'data_type'"
    if not tensor.dims:
        yield "must specify 'dims'"
    if tensor.reshape is not None and not tensor.reshape.shape and config.max_batch_size == 0:
        yield (
            "cannot have empty reshape for non-batching model as scalar tensors are not supported"
        )
    if not _are_lengths(tensor.dims):
        yield f"dimension {_SHAPES}"


def _reshape_problems(tensor: ModelInput | ModelOutput) -> Iterator[str]:
    """Both shapes have equal numbers of elements, also between variable dimensions."""
    if tensor.reshape is None:
        return
    if not _are_lengths(tensor.reshape.shape):
        yield f"reshape dimensions {_SHAPES}"
    before, after = _parts(tensor.dims), _parts(tensor.reshape.shape)
    if (len(before) > 1) is (len(after) > 1) and len(before) != len(after):
        yield "has different number of variable-size dimensions for dims and reshape"
    if before != after:
        yield "has different size for dims and reshape"


def _are_lengths(dims: Sequence[int]) -> bool:
    return all(dim >= 1 or dim == ANY for dim in dims)


def _parts(dims: Sequence[int]) -> list[int]:
    """The numbers of elements between variable dimensions."""
    parts = [1]
    for dim in dims:
        if dim == ANY:
            parts.append(1)
        else:
            parts[-1] *= dim
    return parts


def _layout_problems(tensor: ModelInput | ModelOutput, platform: str) -> Iterator[str]:
    """Properties that only TensorRT supports."""
    if tensor.is_shape_tensor and platform != "tensorrt_plan":
        yield "shape tensors are only supported for TensorRT platform"
    if not tensor.is_non_linear_format_io:
        return
    if platform != "tensorrt_plan":
        yield "Non-linear IO format is only supported for the TensorRT platform"
    elif len(tensor.dims) != 3:
        side = "input" if isinstance(tensor, ModelInput) else "output"
        yield f"Non-linear IO format {side} requires 3 dims"


def batch_tensor_problems(config: ModelConfig) -> Iterator[str]:
    """Problems of `batch_input` and `batch_output`."""
    for computed in config.batch_input:
        if computed.data_type is None:
            yield f"unexpected batch input data type '{NO_DATATYPE}'"
        for problem in _computed_problems(computed, config):
            yield f"{problem} for {config.name}"
    for split in config.batch_output:
        for problem in _split_problems(split, config):
            yield f"{problem} for {config.name}"


def _computed_problems(tensor: BatchInput, config: ModelConfig) -> Iterator[str]:
    sources = len(tensor.source_input)
    if sources != 1:
        yield f"batch input kind '{tensor.kind}' expects 1 source input, got {sources}"
    if tensor.data_type is not None and tensor.data_type not in (DataType.INT32, DataType.FP32):
        yield "batch input data type must be TYPE_INT32 or TYPE_FP32"
    yield from _source_problems(tensor, config)


def _split_problems(tensor: BatchOutput, config: ModelConfig) -> Iterator[str]:
    sources = len(tensor.source_input)
    if sources != 1:
        yield f"batch output kind '{tensor.kind}' expects 1 source input, got {sources}"
    yield from _source_problems(tensor, config)
    for at, name in enumerate(tensor.target_name):
        if name not in config.outputs_by_name:
            yield f"unknown target output name '{name}'"
        if name in tensor.target_name[:at]:
            yield f"target output name '{name}' can only be specified once"


def _source_problems(tensor: BatchInput | BatchOutput, config: ModelConfig) -> Iterator[str]:
    for name in tensor.source_input:
        if name not in config.inputs_by_name:
            yield f"unknown source input name '{name}'"
