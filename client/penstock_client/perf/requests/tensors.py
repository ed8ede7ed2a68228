"""Tensors for the inputs of a model: random ones, zeros, or those of a file's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from penstock.core.tensor import DataType, Tensor
from penstock_client.perf.errors import PerfError
from penstock_client.perf.server import ModelInfo, TensorInfo

Step = Mapping[str, Tensor]
"""The inputs of one request without a batch dimension, by name."""

_ALPHABET = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ", "S1")
_MOST_BYTES = 1 << 31  # of a request, by gRPC and by Triton's HTTP server
_BELOW = 100  # random integers, so that they are small enough for any type and most vocabularies


@dataclass(frozen=True, slots=True)
class TensorOptions:
    """What made tensors are like: `shapes` by name for dimensions that vary, length of strings.

    There are `count` requests with contents of their own.
    """

    zero: bool = False
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    string_length: int = 128
    string: str = ""
    seed: int = 0
    count: int = 1


def made_steps(model: ModelInfo, options: TensorOptions) -> list[Step]:
    """Inputs with made-up content; optional inputs are left out unless they are given a shape."""
    if unknown := set(options.shapes) - {each.name for each in model.inputs}:
        raise PerfError(f"--shape: model '{model.name}' has no input '{sorted(unknown)[0]}'")
    chance = np.random.default_rng(options.seed)
    wanted = [
        (each, fixed_shape(each, options.shapes))
        for each in model.inputs
        if not each.optional or each.name in options.shapes
    ]
    size = options.count * sum(_least_bytes(info, shape, options) for info, shape in wanted)
    if size > _MOST_BYTES:
        raise PerfError(f"the inputs would have {size} bytes: make them smaller, or fewer")
    return [
        {info.name: _made(info, shape, options, chance) for info, shape in wanted}
        for _ in range(options.count)
    ]


def _least_bytes(info: TensorInfo, shape: tuple[int, ...], options: TensorOptions) -> int:
    datatype = DataType(info.datatype)
    strings = datatype is DataType.BYTES
    return prod(shape) * (4 + options.string_length if strings else datatype.itemsize)


def fixed_shape(info: TensorInfo, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The shape to send, which `--shape` must give where the model leaves it open."""
    given = shapes.get(info.name)
    if given is None:
        if -1 in info.shape:
            raise PerfError(
                f"input '{info.name}' has shape {list(info.shape)}: give the size of what varies,"
                f" such as --shape {info.name}:{','.join(str(max(s, 4)) for s in info.shape)}"
            )
        return info.shape
    check_shape(info, given, "--shape")
    return given


def check_shape(info: TensorInfo, shape: Sequence[int], where: str) -> None:
    """Raises `PerfError` for a shape that the model does not take."""
    if len(shape) != len(info.shape) or any(
        want not in (-1, size) for want, size in zip(info.shape, shape, strict=True)
    ):
        raise PerfError(
            f"{where}: input '{info.name}' has shape {list(info.shape)}, not {list(shape)}"
        )


def _made(
    info: TensorInfo, shape: tuple[int, ...], options: TensorOptions, chance: np.random.Generator
) -> Tensor:
    datatype = DataType(info.datatype)
    count = prod(shape)
    if datatype is DataType.BYTES:
        return Tensor.from_strings([_string(options, chance) for _ in range(count)], shape)
    if options.zero:
        return Tensor.from_numpy(np.zeros(shape, datatype.numpy), datatype)
    if datatype is DataType.BF16:  # the upper half of a float's bits
        bits = chance.random(shape, np.float32).view(np.uint32) >> 16
        return Tensor.from_numpy(bits.astype(np.uint16), datatype)
    if datatype.numpy.kind == "f":
        return Tensor.from_numpy(chance.random(shape).astype(datatype.numpy), datatype)
    below = 2 if datatype is DataType.BOOL else _BELOW
    return Tensor.from_numpy(chance.integers(0, below, shape).astype(datatype.numpy), datatype)


def _string(options: TensorOptions, chance: np.random.Generator) -> bytes:
    if options.string:
        return options.string.encode()
    if options.zero:
        return b""
    return chance.choice(_ALPHABET, options.string_length).tobytes()


def batched(steps: Sequence[Step], rows: int) -> list[Step]:
    """Requests of `rows` rows: each begins with another step, and takes those behind it.

    With 0 rows the model has no batch dimension, and steps stay as they are.
    """
    if rows == 0:
        return list(steps)
    count = len(steps)
    return [
        _joined([steps[(first + row) % count] for row in range(rows)]) for first in range(count)
    ]


def _joined(steps: Sequence[Step]) -> Step:
    found: dict[str, Tensor] = {}
    for name, first in steps[0].items():
        tensors = [step.get(name, first) for step in steps]
        if len({tensor.shape for tensor in tensors}) > 1:
            raise PerfError(
                f"input '{name}' has different shapes, which cannot be batched: use -b 1"
            )
        buffer = b"".join(bytes(tensor.buffer) for tensor in tensors)
        found[name] = Tensor(first.datatype, (len(tensors), *first.shape), buffer)
    return found
