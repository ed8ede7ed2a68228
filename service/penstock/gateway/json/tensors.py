"""Encoder and decoder of tensor data in JSON: orjson encodes numbers, numpy converts both ways."""

from __future__ import annotations

import asyncio
import sys
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import orjson

from penstock.core.errors import InferenceError, InternalError, InvalidRequestError, shortened
from penstock.core.tensor import Array, DataType, Tensor, encode_elements
from penstock.gateway.json.errors import number_too_big
from penstock.gateway.json.fields import unable, wrong_type
from penstock.gateway.json.number_lists import NumberList
from penstock.gateway.json.text import dump

_LENIENT = "surrogateescape"

_LENGTH = 4
"""Bytes of the length before a string."""

_NUMBERS_AT_ONCE = 1 << 17
_STRINGS_AT_ONCE = 1 << 14
"""Bytes of a tensor that are encoded in one piece, in less than a millisecond."""

SHORT_TEXT = _STRINGS_AT_ONCE - _LENGTH
"""Bytes of a text whose tensor is encoded in one piece."""

_STEP = 2048
"""Strings that are encoded at a time."""

_CHARACTERS = 1 << 15
"""Bytes of strings that are encoded at a time."""

_NUMBERS = 1 << 15
"""Numbers that are encoded at a time."""

_PART = 1 << 18
"""Smallest size in bytes of a part of the body."""

_DIMENSIONS = 32
"""The most dimensions that every supported version of numpy accepts."""

_FEW = 4096
"""Bytes of numbers up to which a list takes less time than an array."""

_BINARY_ONLY = (DataType.FP16, DataType.BF16)
FORMATS: dict[DataType, Literal["?", "B", "H", "I", "Q", "b", "h", "i", "q", "f", "d"]] = {
    DataType.BOOL: "?",
    DataType.UINT8: "B",
    DataType.UINT16: "H",
    DataType.UINT32: "I",
    DataType.UINT64: "Q",
    DataType.INT8: "b",
    DataType.INT16: "h",
    DataType.INT32: "i",
    DataType.INT64: "q",
    DataType.FP32: "f",
    DataType.FP64: "d",
}
"""The formats of the numbers that JSON can carry, as of `struct` and `memoryview`."""


@dataclass(frozen=True, slots=True)
class _NumberKind:
    """A kind of numbers: its Python types, the widest dtype, and its name in error texts."""

    types: frozenset[type]
    wide: np.dtype[Any]
    name: str
    expected: str

    def error(self) -> InferenceError:
        return wrong_type(self.name, self.expected, unable("data"))


_KINDS = {
    "b": _NumberKind(frozenset({bool}), np.dtype(np.bool_), "boolean", "boolean"),
    "u": _NumberKind(frozenset({int}), np.dtype(np.uint64), "unsigned-integer", "unsigned-integer"),
    "i": _NumberKind(frozenset({int}), np.dtype(np.int64), "signed-integer", "signed-integer"),
    "f": _NumberKind(frozenset({int, float}), np.dtype(np.float64), "number", "double"),
}


def tensor_from_json(
    name: str, datatype: DataType, shape: Sequence[int], data: list[Any] | NumberList, count: int
) -> Tensor:
    """Decode a tensor of `count` elements from a list, nested in any way (HI-03 to HI-07)."""
    if datatype in _BINARY_ONLY:
        raise InvalidRequestError(
            f"receiving {datatype} data via JSON is not supported."
            f" Please use the binary data format for input {shortened(name)}"
        )
    if datatype is DataType.INVALID:
        raise InvalidRequestError(f"invalid datatype for input {shortened(name)}")
    if isinstance(data, NumberList):
        wide = _checked(data, datatype, count)
    else:
        flat = _flatten(data)
        if datatype is DataType.BYTES:
            return Tensor(datatype, shape, encode_elements(_encoded(flat)))
        wide = _numbers(flat, datatype, count)
    # Numbers out of the datatype's range are truncated as by a C cast, or become infinite.
    with np.errstate(over="ignore"):
        narrow = wide.astype(datatype.numpy, copy=False)
    numbers = Tensor.from_numpy(narrow, datatype)
    if len(shape) > _DIMENSIONS:
        return Tensor(datatype, shape, numbers.buffer)
    return numbers.reshaped(shape)


def tensor_to_json(name: str, tensor: Tensor) -> list[Any]:
    """The elements of a tensor, flat; raises for datatypes that JSON cannot carry."""
    if (
        tensor.datatype is DataType.BYTES
        and len(tensor.buffer) >= _LENGTH
        and prod(tensor.shape) == 1
    ):
        text = bytes(tensor.buffer)
        if (
            int.from_bytes(text[:_LENGTH], "little") == len(text) - _LENGTH
        ):  # one string, as of tokens
            return [_text(text[_LENGTH:])]
    return _elements(_flat(name, tensor))


def is_short(tensor: Tensor) -> bool:
    """Whether a tensor may be encoded in one piece, by `tensor_text`."""
    strings = tensor.datatype is DataType.BYTES
    return tensor.nbytes <= (_STRINGS_AT_ONCE if strings else _NUMBERS_AT_ONCE)


def tensor_text(name: str, tensor: Tensor) -> bytes:
    """A small tensor as a JSON list; raises as `tensor_to_json` does."""
    text = _short_text(tensor)
    return _encode(_flat(name, tensor)) if text is None else text


def _short_text(tensor: Tensor) -> bytes | None:
    """A tensor of few numbers as a JSON list, without an array; `None` for others."""
    code = FORMATS.get(tensor.datatype)
    if code is None or tensor.nbytes > _FEW or sys.byteorder != "little":
        return None
    if tensor.nbytes != prod(tensor.shape) * tensor.datatype.itemsize:
        return None
    text = orjson.dumps(memoryview(tensor.buffer).cast("B").cast(code).tolist())
    return None if b"n" in text else text  # null, which is NaN or infinite


async def tensor_to_text(name: str, tensor: Tensor) -> list[bytes]:
    """A tensor as a JSON list, in parts; raises as `tensor_to_json` does.

    Yields to the event loop after every millisecond or two of work.
    """
    if is_short(tensor):
        return [tensor_text(name, tensor)]
    # Strings are decoded one by one: numpy has no operation for it.
    slow = tensor.datatype is DataType.BYTES
    flat = await asyncio.to_thread(_flat, name, tensor) if slow else _flat(name, tensor)
    parts, part = [], bytearray(b"[")
    for piece in _strings(flat) if slow else _numbers_in_steps(flat):
        if len(part) >= _PART:
            parts.append(bytes(part))
            part.clear()
        part += piece
        await asyncio.sleep(0)
    part[-1:] = b"]"
    return [*parts, bytes(part)]


def _numbers_in_steps(flat: Array) -> Iterator[bytes]:
    """The text of numbers in pieces, with a comma behind each number."""
    for start in range(0, len(flat), _NUMBERS):
        yield _encode(flat[start : start + _NUMBERS])[1:-1] + b","


def _strings(flat: Array) -> Iterator[bytes]:
    """The same of strings, of which one may be long."""
    few: list[bytes] = []
    size = 0
    for given in flat:
        element = given if isinstance(given, bytes) else _text(given).encode("utf-8", _LENIENT)
        if len(element) > _CHARACTERS:
            yield _joined(few)
            yield from _long_string(element)
            few, size = [], 0
            continue
        few.append(element)
        size += len(element)
        if size > _CHARACTERS or len(few) == _STEP:
            yield _joined(few)
            few, size = [], 0
    yield _joined(few)


def _joined(elements: list[bytes]) -> bytes:
    return dump([_text(element) for element in elements])[1:-1] + b"," if elements else b""


def _long_string(element: bytes) -> Iterator[bytes]:
    """A string in pieces: quotes, the characters between them, and a comma."""
    decoder = getincrementaldecoder("utf-8")(_LENIENT)
    yield b'"'
    for at in range(0, len(element), _CHARACTERS):
        last = at + _CHARACTERS >= len(element)
        yield dump(decoder.decode(element[at : at + _CHARACTERS], last))[1:-1]
    yield b'",'


def _flat(name: str, tensor: Tensor) -> Array:
    if tensor.datatype in _BINARY_ONLY:
        raise InvalidRequestError(
            f"sending {tensor.datatype} data via JSON is not supported."
            " Please use the binary data format for output"
        )
    try:
        return tensor.numpy().ravel()
    except (ValueError, InvalidRequestError) as error:
        raise InternalError(
            f"output tensor shape does not match size of output for '{name}'"
        ) from error


def _encode(flat: Array) -> bytes:
    """Encode elements as a JSON list; floats with the digits of 64 bits, as Triton does."""
    if flat.dtype.kind == "O":
        return dump(_elements(flat))
    if flat.dtype.kind == "f":
        if not np.isfinite(flat).all():
            return dump(flat.tolist())  # NaN and Infinity, which orjson encodes as null
        flat = flat.astype(np.float64, copy=False)
    return orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)


def _elements(flat: Array) -> list[Any]:
    elements: list[Any] = flat.tolist()
    if flat.dtype.kind == "O":
        return [_text(element) for element in elements]
    return elements


def _flatten(data: list[Any]) -> list[Any]:
    """The elements of lists in lists; looks at each once, however deep it is."""
    if list not in map(type, data):
        return data
    flat: list[Any] = []
    levels = [iter(data)]
    while levels:
        for element in levels[-1]:
            if type(element) is not list:
                flat.append(element)
            elif list in map(type, element):
                levels.append(iter(element))
                break
            else:
                flat += element
        else:
            levels.pop()
    return flat


def _encoded(elements: list[Any]) -> Iterable[bytes]:
    if not set(map(type, elements)) <= {str}:
        raise _no_string()
    return (element.encode("utf-8", _LENIENT) for element in elements)


def _text(element: Any) -> str:
    if isinstance(element, bytes):
        return element.decode("utf-8", _LENIENT)
    return str(element)


def _numbers(flat: list[Any], datatype: DataType, count: int) -> Array:
    kind = _KINDS[datatype.numpy.kind]
    if not set(map(type, flat if len(flat) <= count else flat[:count])) <= kind.types:
        raise kind.error()
    if len(flat) != count:
        raise _wrong_count()
    try:
        return np.array(flat, kind.wide)
    except OverflowError as error:
        raise (number_too_big() if kind.wide.kind == "f" else kind.error()) from error


def _checked(numbers: NumberList, datatype: DataType, count: int) -> Array:
    """The numbers as the widest of their kind; raises what `_numbers` raises for the same list."""
    if datatype is DataType.BYTES:
        raise _no_string()
    array, kind = numbers.array, _KINDS[datatype.numpy.kind]
    if kind.wide.kind == "b":
        raise kind.error()
    whole = kind.wide.kind in "iu"
    if whole and array.dtype.kind == "f" and numbers.first_float() < count:
        raise kind.error()
    if len(array) != count:
        raise _wrong_count()
    if whole and array.dtype != kind.wide and (array.dtype.kind == "u" or array.min() < 0):
        raise kind.error()
    return array.astype(kind.wide, copy=False)


def _wrong_count() -> InferenceError:
    return InternalError(f"{unable('data')}Shape does not match true shape of 'data' field")


def _no_string() -> InferenceError:
    return wrong_type("string", "string", "Unable to parse JSON bytes array: ")
