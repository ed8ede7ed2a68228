"""Input data of files in perf_analyzer's forms: JSON, or a folder with a file for each input."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.errors import InvalidRequestError
from penstock.core.tensor import DataType, Tensor, decode_elements
from penstock_client.perf.errors import PerfError
from penstock_client.perf.requests.tensors import Step, check_shape
from penstock_client.perf.server import ModelInfo, TensorInfo

Shapes = Mapping[str, tuple[int, ...]]


def read_streams(path: Path, model: ModelInfo, shapes: Shapes) -> list[list[Step]]:
    """Streams of steps, each of which is a request; raises `PerfError` with the place of a fault.

    What is a plain list of steps in the file becomes one stream.
    """
    if path.is_dir():
        return [[_step(_folder(path, model), model, shapes, str(path))]]
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise PerfError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise PerfError(f"{path}: not JSON: {error}") from error
    data = content.get("data") if isinstance(content, dict) else None
    if not isinstance(data, list) or not data:
        raise PerfError(f'{path}: there is no list "data" with something in it')
    streams = data if isinstance(data[0], list) else [data]
    return [_stream(path, number, stream, model, shapes) for number, stream in enumerate(streams)]


def _stream(path: Path, number: int, stream: Any, model: ModelInfo, shapes: Shapes) -> list[Step]:
    if not isinstance(stream, list) or not stream:
        raise PerfError(f"{path}: stream {number} is not a list with steps")
    steps = []
    for position, step in enumerate(stream):
        where = f"{path}: data[{number}][{position}]"
        if not isinstance(step, dict):
            raise PerfError(f"{where} is not an object with inputs")
        steps.append(_step(step, model, shapes, where))
    return steps


def _step(step: Mapping[str, Any], model: ModelInfo, shapes: Shapes, where: str) -> Step:
    if unknown := [name for name in step if model.input(name) is None]:
        raise PerfError(f"{where}: model '{model.name}' has no input '{unknown[0]}'")
    for each in model.inputs:
        if each.name not in step and not each.optional:
            raise PerfError(f"{where}: input '{each.name}' is missing")
    return {
        name: _tensor(info, value, shapes.get(name), f"{where}.{name}")
        for name, value in step.items()
        if (info := model.input(name)) is not None
    }


def _tensor(info: TensorInfo, value: Any, given: tuple[int, ...] | None, where: str) -> Tensor:
    shape = given
    if isinstance(value, dict):
        if "shape" in value:
            shape = _shape(value["shape"], where)
        if "b64" in value:
            return _raw(info, _decoded(value["b64"], where), shape, where)
        value = value.get("content")
    if isinstance(value, bytes):
        return _raw(info, value, shape, where)
    elements = _flat(value if isinstance(value, list) else [value])
    shape = _fitting(info, shape, len(elements), where)
    datatype = DataType(info.datatype)
    try:
        if datatype is DataType.BYTES:
            return Tensor.from_strings([_string(each) for each in elements], shape)
        if datatype is DataType.BF16:
            bits = np.array(elements, np.float32).view(np.uint32) >> 16
            return Tensor.from_numpy(bits.astype(np.uint16).reshape(shape), datatype)
        return Tensor.from_numpy(np.array(elements, datatype.numpy).reshape(shape), datatype)
    except (TypeError, ValueError, OverflowError) as error:
        raise PerfError(f"{where}: not {datatype.value}: {error}") from error


def _fitting(
    info: TensorInfo, shape: tuple[int, ...] | None, count: int, where: str
) -> tuple[int, ...]:
    """The shape of so many elements; one size that varies follows from their number."""
    if shape is None:
        shape = info.shape
        known = prod(size for size in shape if size != -1)
        if shape.count(-1) == 1 and known and count % known == 0:
            shape = tuple(count // known if size == -1 else size for size in shape)
    if -1 in shape:
        raise PerfError(f'{where}: shape {list(shape)} varies: give it as "shape" or by --shape')
    check_shape(info, shape, where)
    if prod(shape) != count:
        raise PerfError(
            f"{where}: shape {list(shape)} has {prod(shape)} elements, and {count} are given"
        )
    return shape


def _raw(info: TensorInfo, data: bytes, shape: tuple[int, ...] | None, where: str) -> Tensor:
    datatype = DataType(info.datatype)
    if datatype is DataType.BYTES:
        try:
            elements = decode_elements(data)
        except InvalidRequestError:
            elements = [data]  # not in the form of the wire: one string
        return Tensor.from_strings(elements, _fitting(info, shape, len(elements), where))
    count, rest = divmod(len(data), datatype.itemsize)
    if rest:
        raise PerfError(
            f"{where}: {len(data)} bytes are not a whole number of {datatype.value} elements"
        )
    return Tensor(datatype, _fitting(info, shape, count, where), data)


def _folder(path: Path, model: ModelInfo) -> dict[str, Any]:
    """Contents of files by input; those of strings have one in each line."""
    found: dict[str, Any] = {}
    for info in model.inputs:
        file = path / info.name
        if file.is_file():
            content = file.read_bytes()
            strings = DataType(info.datatype) is DataType.BYTES
            try:
                found[info.name] = content.decode().splitlines() if strings else content
            except UnicodeError as error:
                raise PerfError(f"{file}: {error}") from error
    return found


def _flat(values: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        flat.extend(_flat(value) if isinstance(value, list) else [value])
    return flat


def _shape(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(isinstance(size, int) for size in value):
        raise PerfError(f'{where}: "shape" is not a list of whole numbers')
    return tuple(value)


def _decoded(text: Any, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise PerfError(f"{where}: not base64: {error}") from error


def _string(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
