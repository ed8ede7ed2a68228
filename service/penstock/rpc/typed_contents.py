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

from penstock.core.body_quota import BodyQuota, Charge
from penstock.core.buffer import Buffer
from penstock.core.errors import ExhaustedError, InvalidRequestError
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
_DELIMITED = 2
_FIXED = {DataType.FP32: 5, DataType.FP64: 1}
_SINGLE = dict.fromkeys(_TYPED.values(), 0) | _FIXED | {DataType.BYTES: _DELIMITED}
"""Wire types of single values."""
_LENGTH = struct.Struct("<I")
_TEXT = 0x42
"""The tag of an element of `bytes_contents`."""
_WINDOW = 16 << 10
"""Bytes of short elements that are read together; what a varint of two bytes counts may fit."""
_LENGTHS = [_LENGTH.pack(size) for size in range(128)]

_STEP = 1024
"""Fields of a step, of which larger ones count more."""
_COPIED = 10
"""Bits of the number of bytes whose copy takes as long as a field besides."""
_SLICE = 64 << 10
"""Bytes of numbers that are decoded in a step."""
_MOST_SINGLE = 64 << 10
"""The most numbers that are not packed, which every encoder does, and unknown fields."""
_SHORT = 64
"""Bytes of numbers that are copied behind those before them: a view takes more."""
_LONGEST_VARINT = 10
_NO_MEMORY = "the server's memory for requests is used up"


@dataclass(frozen=True, slots=True)
class ContentLimits:
    """Limits of typed contents, and of BYTES in any form.

    `size` is in bytes of all inputs of a request, as they are sent and as they are decoded;
    `elements` are those of one input.
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

    `where` names the tensor in errors. `before` are the bytes of the inputs before it.
    """

    def __init__(
        self,
        message: memoryview,
        spans: Sequence[Span],
        where: str,
        limits: ContentLimits,
        before: int = 0,
    ) -> None:
        self._message = message
        self._spans = spans
        self._where = where
        self._limits = limits
        self._before = before
        self._numbers: dict[DataType, list[memoryview | bytearray]] = {}
        self._decoded = bytearray()
        self._count = self._single = self._unknown = 0
        self._left = _STEP

    def decode(self, datatype: DataType) -> Steps[tuple[Buffer, int | None]]:
        """The bytes as of raw contents, and the number of elements where they are BYTES.

        Raises `InvalidRequestError`, and `DecodeError`.
        """
        yield from self._read_fields()
        given = [wide for wide in _TYPED.values() if wide in self._numbers]
        given += [DataType.BYTES] * bool(self._count)
        if not given:
            return b"", None
        wide = _chosen(given, datatype, self._where)
        if wide is DataType.BYTES:
            return self._decoded, self._count
        numbers = self._numbers[wide]
        if wide in _FIXED:
            return numbers[0] if len(numbers) == 1 else b"".join(numbers), None
        decoded = self._decoded
        for part in _sliced(numbers):
            decoded += _converted(_varints(part), wide, datatype)
            self._check_size(len(decoded))
            yield
        return decoded, None

    def _read_fields(self) -> Steps[None]:
        self._check_size(sum(end - begin for begin, end in self._spans))
        for at, end in self._spans:
            while at < end:
                at = self._read_texts(at, end)
                if at < end and self._left > 0:
                    at = self._read_others(at, end)
                if self._left <= 0:
                    self._left = _STEP
                    yield

    def _read_texts(self, at: int, end: int) -> int:
        """Read the short texts that begin here, without the cost of other fields; returns where
        something else begins, or the step ends.
        """
        stop = min(end, at + _WINDOW)
        window = bytes(self._message[at:stop])
        whole = len(window)
        last, here, count, lengths = whole - 2, 0, 0, _LENGTHS
        parts: list[bytes] = []
        while here < last and window[here] == _TEXT:
            size, start = window[here + 1], here + 2
            if size < 0x80:
                length = lengths[size]
            else:
                size, start = size & 0x7F | window[start] << 7, start + 1
                length = _LENGTH.pack(size)
            after = start + size
            if after > whole:
                break
            parts.append(length)
            parts.append(window[start:after])
            here = after
            count += 1
        self._decoded += b"".join(parts)
        self._left -= count
        self._count_texts(count)
        return at + here

    def _count_texts(self, count: int) -> None:
        self._count += count
        if self._count > self._limits.elements:
            raise too_many_elements(self._where, self._limits.elements)

    def _read_others(self, at: int, end: int) -> int:
        """Read a field, and those that follow up to the next text, or the end of the step."""
        for tag, _, value, after in fields_of(self._message, at, end):
            self._read(tag >> 3, tag & 7, self._message[value:after])
            at = after
            self._left -= 1 + (after - value >> _COPIED)
            if self._left <= 0 or (at < end and self._message[at] == _TEXT):
                break
        return at

    def _read(self, number: int, kind: int, value: memoryview) -> None:
        """Keep the value of a field; what has another wire type than the field's is unknown."""
        datatype = _NUMBERS.get(number)
        if kind == _DELIMITED and datatype is DataType.BYTES:
            self._count_texts(1)
            self._decoded += _LENGTH.pack(len(value))
            self._decoded += value
        elif datatype is None or (kind != _DELIMITED and kind != _SINGLE[datatype]):
            self._unknown += 1
            if self._unknown > _MOST_SINGLE:
                raise self._use_raw(f"has more than {_MOST_SINGLE} unknown fields in its contents")
        else:
            self._single += kind != _DELIMITED or len(value) < _LONGEST_VARINT
            if self._single > _MOST_SINGLE:
                raise self._use_raw(f"has more than {_MOST_SINGLE} numbers that are not packed")
            if len(value):
                _check_end(datatype, value)
                self._keep(self._numbers.setdefault(datatype, []), value)

    def _keep(self, numbers: list[memoryview | bytearray], value: memoryview) -> None:
        if len(value) > _SHORT:
            numbers.append(value)
        elif numbers and isinstance(numbers[-1], bytearray):
            numbers[-1] += value
        else:
            numbers.append(bytearray(value))

    @property
    def decoded_size(self) -> int:
        """Bytes that are decoded so far."""
        return len(self._decoded)

    def _check_size(self, size: int) -> None:
        if self._before + size > self._limits.size:
            raise self._use_raw(
                f"exceeds the {self._limits.size} bytes of typed contents that a request may have"
            )

    def _use_raw(self, what: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"input tensor {self._where} {what}, use raw_input_contents for it"
        )


def _check_end(datatype: DataType, value: memoryview) -> None:
    """Raise `DecodeError` if packed numbers are cut short."""
    if len(value) % datatype.itemsize if datatype in _FIXED else value[-1] >= 0x80:
        raise DecodeError("packed numbers are cut short")


def counted(
    steps: Steps[tuple[Buffer, int | None]], contents: LargeContents, quota: BodyQuota | None
) -> Steps[tuple[Buffer, int | None]]:
    """The steps of a decoder, whose bytes `quota` counts, from its first one on.

    Raises `ExhaustedError` where so much memory is used up that nobody may take more.
    """
    if quota is None:
        result = yield from steps
        return result
    charge, held = Charge(0), False
    try:
        while True:
            try:
                next(steps)
            except StopIteration as done:
                decoded, count = done.value
                break
            quota.add(charge, contents.decoded_size - charge.size)
            if quota.overdrawn:
                raise ExhaustedError(_NO_MEMORY)
            yield
        if len(decoded):
            decoded, held = np.frombuffer(decoded, np.uint8).data, True
            quota.add(charge, len(decoded) - charge.size)
            quota.close_with(decoded, charge)
        return decoded, count
    finally:
        if not held:
            quota.close(charge)


def _sliced(numbers: Iterable[memoryview | bytearray]) -> Iterable[memoryview]:
    """The parts of packed numbers, cut into slices that end with a number."""
    for piece in numbers:
        part = memoryview(piece)
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
