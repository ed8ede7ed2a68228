"""Typed contents of input tensors, `InferTensorContents`: which field counts, and its bytes (G-27).

Small ones are parsed by protobuf. Large ones are decoded here, in steps: protobuf and its lists of
Python's numbers would take half a second and 30 times the memory for each 8 MiB.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from penstock.core.buffer import Buffer
from penstock.core.errors import InvalidRequestError
from penstock.core.request_limits import MOST_ELEMENTS, too_many_elements
from penstock.core.tensor import DataType, encode_elements
from penstock.core.turns import Steps
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.infer_layout import Span, fields_of

_NARROW = {
    DataType.INT32: (DataType.INT8, DataType.INT16),
    DataType.UINT32: (DataType.UINT8, DataType.UINT16),
}
_TYPED = {
    "bool_contents": DataType.BOOL,
    "int_contents": DataType.INT32,
    "int64_contents": DataType.INT64,
    "uint_contents": DataType.UINT32,
    "uint64_contents": DataType.UINT64,
    "fp32_contents": DataType.FP32,
    "fp64_contents": DataType.FP64,
    "bytes_contents": DataType.BYTES,
}
"""Fields of typed contents, in the order in which they are read, and their datatypes (G-27)."""

_NUMBERS = dict(enumerate(_TYPED.values(), start=1))
"""Datatypes by the number of the field."""
_FIXED = {DataType.FP32: 5, DataType.FP64: 1}
"""Wire types of single values; those of all others are 0, varints."""
_DELIMITED = 2
_LENGTH = struct.Struct("<I")

_STEP = 4096
"""Fields of a step."""
_SLICE = 64 << 10
"""Bytes of numbers that are decoded in a step."""
_MOST_SINGLE = 64 << 10
"""The most numbers that are not packed; every encoder packs them."""
_LONGEST_VARINT = 10


@dataclass(frozen=True, slots=True)
class ContentLimits:
    """Limits of typed contents, and of BYTES in any form.

    `size` is in bytes, as they are sent and as they are decoded; `elements` are those of one input.
    """

    size: int = 64 << 20
    elements: int = MOST_ELEMENTS


def decode_contents(contents: pb.InferTensorContents, datatype: DataType, where: str) -> Buffer:
    """The bytes of small typed contents. Raises `InvalidRequestError` for the wrong field."""
    given = [field for field in _TYPED if getattr(contents, field)]
    if not given:
        return b""
    wide = _chosen([_TYPED[field] for field in given], datatype, where)
    values = getattr(contents, given[0])
    if wide is DataType.BYTES:
        return encode_elements(values)
    # Values of a wide field are cut to the narrow datatype, as a C cast does.
    return np.array(values, dtype=wide.numpy).astype(datatype.numpy).tobytes()


def _chosen(given: Sequence[DataType], datatype: DataType, where: str) -> DataType:
    """The datatype of the field that counts, of those that are not empty; it must be the only one.

    Errors are those of reading the fields one after the other.
    """
    refused = f"unexpected explicit tensor data for input tensor {where}"
    wide = given[0]
    if datatype is not wide and datatype not in _NARROW.get(wide, ()):
        raise InvalidRequestError(
            f"{refused} of type '{wide.value}', expected datatype '{datatype.value}'"
        )
    if len(given) > 1:
        raise InvalidRequestError(f"{refused}, binary data was already supplied.")
    return wide


class LargeContents:
    """Decodes the typed contents of one input, which lie at `spans` of a message.

    `where` names the tensor in errors.
    """

    def __init__(
        self, message: memoryview, spans: Sequence[Span], where: str, limits: ContentLimits
    ) -> None:
        self._message = message
        self._spans = spans
        self._where = where
        self._limits = limits
        self._numbers: dict[DataType, list[memoryview]] = {}
        self._elements = bytearray()
        self._count = self._single = 0

    def decode(self, datatype: DataType) -> Steps[tuple[Buffer, int]]:
        """The bytes as of raw contents, and the number of elements where they are BYTES.

        Raises `InvalidRequestError`, and `DecodeError`.
        """
        yield from self._read_fields()
        given = [wide for wide in _TYPED.values() if wide in self._numbers]
        given += [DataType.BYTES] * bool(self._count)
        if not given:
            return b"", 0
        wide = _chosen(given, datatype, self._where)
        if wide is DataType.BYTES:
            return self._elements, self._count
        numbers = self._numbers[wide]
        if wide in _FIXED:
            return self._fixed(numbers, wide), 0
        decoded = bytearray()
        for part in _sliced(numbers):
            decoded += _converted(_varints(part), wide, datatype)
            self._check_size(len(decoded))
            yield
        return decoded, 0

    def _read_fields(self) -> Steps[None]:
        fields = 0
        for begin, end in self._spans:
            self._check_size(end - begin)
            for tag, _, value, after in fields_of(self._message, begin, end):
                self._read(tag >> 3, tag & 7, self._message[value:after])
                fields += 1
                if not fields % _STEP:
                    yield

    def _read(self, number: int, kind: int, value: memoryview) -> None:
        """Keep the value of a field; what has another wire type than the field's is unknown."""
        datatype = _NUMBERS.get(number)
        if datatype is None:
            return
        if datatype is DataType.BYTES:
            if kind == _DELIMITED:
                self._count += 1
                if self._count > self._limits.elements:
                    raise too_many_elements(self._where, self._limits.elements)
                self._elements += _LENGTH.pack(len(value))
                self._elements += value
        elif kind == _DELIMITED or kind == _FIXED.get(datatype, 0):
            self._single += kind != _DELIMITED or len(value) < _LONGEST_VARINT
            if self._single > _MOST_SINGLE:
                raise _use_raw(f"more than {_MOST_SINGLE} numbers that are not packed", self._where)
            if len(value):
                self._numbers.setdefault(datatype, []).append(value)

    def _fixed(self, numbers: list[memoryview], datatype: DataType) -> Buffer:
        if any(len(part) % datatype.itemsize for part in numbers):
            raise DecodeError("packed numbers are cut short")
        return numbers[0] if len(numbers) == 1 else b"".join(numbers)

    def _check_size(self, size: int) -> None:
        if size > self._limits.size:
            raise _use_raw(f"more than {self._limits.size} bytes of typed contents", self._where)


def _use_raw(what: str, where: str) -> InvalidRequestError:
    return InvalidRequestError(f"input tensor {where} has {what}, use raw_input_contents for it")


def _sliced(numbers: Iterable[memoryview]) -> Iterable[memoryview]:
    """The parts of packed numbers, cut into slices that end with a number."""
    for part in numbers:
        at, end = 0, len(part)
        while at < end:
            stop = min(at + _SLICE, end)
            last = stop
            while part[last - 1] >= 0x80 and last > stop - _LONGEST_VARINT and last - 1 > at:
                last -= 1
            if part[last - 1] >= 0x80:
                raise DecodeError("a number has no end")
            yield part[at:last]
            at = last


def _varints(data: memoryview) -> NDArray[np.uint64]:
    """The numbers that these bytes are the encodings of."""
    octets = np.frombuffer(data, np.uint8)
    if not np.any(octets & 0x80):
        return octets.astype(np.uint64)
    ends = np.flatnonzero(octets < 0x80)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > _LONGEST_VARINT:
        raise DecodeError("a number of more than ten bytes")
    numbers = np.zeros(len(ends), np.uint64)
    for place in range(longest):
        reach = lengths > place
        digits = (octets[starts[reach] + place] & 0x7F).astype(np.uint64)
        numbers[reach] |= digits << np.uint64(7 * place)
    return numbers


def _converted(numbers: NDArray[np.uint64], wide: DataType, datatype: DataType) -> bytes:
    """The numbers in the datatype: cut to the width of their field, then to that of the tensor."""
    values: NDArray[Any] = numbers
    if wide is DataType.BOOL:
        values = numbers != 0
    elif wide is DataType.INT32:
        values = numbers.astype(np.uint32).view(np.int32)
    return values.astype(datatype.numpy).tobytes()
