"""Initialisers and constants of an ONNX file, by protobuf's wire format: without their data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path, PurePosixPath

from penstock.models.sizing.headers.header_file import HeaderFile

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
"""The fields of each message of onnx.proto that lead to tensors."""

_DIMS, _TYPE, _EXTERNAL, _LOCATION = 1, 2, 13, 14
_DATA = (4, 5, 6, 7, 9, 10, 11)
_RAW, _STRINGS = 9, 8

_TYPES = {
    1: ("FP32", 32),
    2: ("UINT8", 8),
    3: ("INT8", 8),
    4: ("UINT16", 16),
    5: ("INT16", 16),
    6: ("INT32", 32),
    7: ("INT64", 64),
    8: ("STRING", 0),
    9: ("BOOL", 8),
    10: ("FP16", 16),
    11: ("FP64", 64),
    12: ("UINT32", 32),
    13: ("UINT64", 64),
    14: ("COMPLEX64", 64),
    15: ("COMPLEX128", 128),
    16: ("BF16", 16),
    17: ("FP8", 8),
    18: ("FP8", 8),
    19: ("FP8", 8),
    20: ("FP8", 8),
    21: ("UINT4", 4),
    22: ("INT4", 4),
    23: ("FP4", 4),
    24: ("FP8", 8),
    25: ("UINT2", 2),
    26: ("INT2", 2),
}
"""Name and bits of an element, by the number of a data type."""

_NUMBERS = re.compile(rb"(?:\x3d.{4}|\x40[\x80-\xff]{0,9}[\x00-\x7f])++", re.DOTALL)
_NUMBER_TAGS = (0x3D, 0x40)
"""Numbers of an attribute that are not packed: forests have millions, passed over in one go."""
_CHUNK = 1 << 16

_NO_MESSAGE = "is no protobuf message: it is not an ONNX file, or damaged"
_MOST_FIELDS = 4_000_000
_DEEPEST = 64
_LONGEST = 1 << 12
"""Bytes of a name of external data, or of packed dimensions."""


def read_onnx(path: Path) -> dict[str, int]:
    """Bytes of weights by data type, with those in files beside it. Raises `ModelLoadError`."""
    with HeaderFile.opened(path) as file:
        reader = _Reader(file)
        reader.read("model", file.size, 0)
        if not reader.graph:
            file.fail("has no graph: it is not an ONNX file")
        return dict(reader.weights)


def external_files(path: Path) -> frozenset[str]:
    """The paths, from its folder on, of files that have weights of an ONNX file.

    They need not be there. Raises `ModelLoadError`.
    """
    with HeaderFile.opened(path) as file:
        reader = _Reader(file, looks=False)
        reader.read("model", file.size, 0)
        return frozenset(reader.files)


@dataclass(slots=True)
class _Tensor:
    """A `TensorProto`, as far as its size goes."""

    dims: list[int] = field(default_factory=list)
    type: int = 0
    data: int = 0  # bytes that lie in it
    raw: bool = False
    external: dict[str, str] = field(default_factory=dict)


class _Reader:
    """Walks messages depth first, and counts the bytes of tensors by data type.

    Where it `looks`, external data must be there.
    """

    def __init__(self, file: HeaderFile, *, looks: bool = True) -> None:
        self._file, self._looks = file, looks
        self.files = set[str]()
        self._left = _MOST_FIELDS
        self.weights = Counter[str]()
        self.graph = False

    def read(self, kind: str, end: int, depth: int) -> None:
        """Read a message of this kind, from where the file stands to `end`."""
        if depth > _DEEPEST:
            self._file.fail("has graphs inside of graphs, deeper than any model")
        inside = _INSIDE[kind]
        for number, wire, length in self._fields(end, numbers=kind == "attribute"):
            below = inside.get(number)
            if below is None or wire != _BYTES:
                continue
            self.graph = self.graph or below == "graph"
            if below == "tensor":
                self._count(self._tensor(self._file.at + length))
            else:
                self.read(below, self._file.at + length, depth + 1)

    def _fields(self, end: int, *, numbers: bool = False) -> Iterator[tuple[int, int, int]]:
        """Number, wire type and value or length of each field; the file stands at its bytes.

        With `numbers`, those of an attribute that follow each other count as one field.
        """
        file = self._file
        while file.at < end:
            self._left -= 1
            if self._left < 0:
                file.give_up("has more fields than any model")
            tag = self._varint()
            wire = tag & 7
            if not tag >> 3:
                file.fail(_NO_MESSAGE)
            if wire == _VARINT:
                value, length = self._varint(), 0
            elif wire in (_BYTES, _FIXED32, _FIXED64):
                value = length = self._varint() if wire == _BYTES else 4 if wire == _FIXED32 else 8
            else:
                file.fail(_NO_MESSAGE)
            behind = file.at + length
            if behind > end:
                file.fail("is cut short, or damaged: a message ends behind the one around it")
            yield tag >> 3, wire, value
            file.go(behind)
            if numbers and tag in _NUMBER_TAGS:
                self._pass_numbers(end)

    def _pass_numbers(self, end: int) -> None:
        """Pass over all numbers of an attribute that follow."""
        file = self._file
        while file.at < end:
            begin = file.at
            found = _NUMBERS.match(file.read(min(_CHUNK, end - begin)))
            file.go(begin + found.end() if found else begin)
            if not found:
                return

    def _varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self._file.read(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF
            shift += 7
            if shift > 63:
                self._file.fail(_NO_MESSAGE)

    def _tensor(self, end: int) -> _Tensor:
        tensor = _Tensor()
        for number, wire, value in self._fields(end):
            if number == _DIMS:
                tensor.dims += [value] if wire == _VARINT else self._packed(value)
            elif number == _TYPE and wire == _VARINT:
                tensor.type = value
            elif number == _EXTERNAL and wire == _BYTES:
                key, text = self._pair(self._file.at + value)
                tensor.external[key] = text
            elif number in _DATA:
                tensor.data += 1 if wire == _VARINT else value
                tensor.raw = tensor.raw or number == _RAW
        return tensor

    def _packed(self, length: int) -> list[int]:
        if length > _LONGEST:
            self._file.fail(f"has a tensor of {length} bytes of dimensions")
        end, found = self._file.at + length, []
        while self._file.at < end:
            found.append(self._varint())
        return found

    def _pair(self, end: int) -> tuple[str, str]:
        """Key and value of an entry of external data."""
        found = {1: "", 2: ""}
        for number, wire, length in self._fields(end):
            if number in found and wire == _BYTES:
                if length > _LONGEST:
                    self._file.fail(f"names external data by a text of {length} bytes")
                found[number] = self._file.read(length).decode(errors="replace")
        return found[1], found[2]

    def _count(self, tensor: _Tensor) -> None:
        name, bits = _TYPES.get(tensor.type, (f"type {tensor.type}", 0))
        if len(tensor.dims) > _DEEPEST:
            self._file.fail(f"has a tensor of {len(tensor.dims)} dimensions")
        elements = prod(tensor.dims)
        size = -(-elements * bits // 8)
        if tensor.external:
            size = self._external(tensor, size)
        elif tensor.raw or not bits:  # of texts, and of types that came later, what lies there
            size = tensor.data
        elif elements > tensor.data:
            self._file.fail(f"has a tensor of {elements} elements in {tensor.data} bytes")
        self.weights[name] += size

    def _external(self, tensor: _Tensor, size: int) -> int:
        """The bytes of a tensor that lies in another file, which must be there."""
        location = tensor.external.get("location", "")
        path = PurePosixPath(location)
        if not location or path.is_absolute() or ".." in path.parts or "\0" in location:
            self._file.fail(f"has external data at '{location}', which is no file beside it")
        self.files.add(str(path))
        if not self._looks:
            return 0
        begin = self._whole(tensor, "offset", 0)
        beside = self._file.path.parent / location
        if not beside.is_file():
            self._file.fail(f"has external data in '{location}', which is not there")
        there = beside.stat().st_size
        length = self._whole(tensor, "length", size if tensor.type in _TYPES else there - begin)
        if begin + length > there:
            self._file.fail(f"has external data in '{location}', which is cut short")
        return length

    def _whole(self, tensor: _Tensor, key: str, default: int) -> int:
        text = tensor.external.get(key, "")
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            self._file.fail(f"has external data whose '{key}' is '{text[:80]}'")
        return int(text)
