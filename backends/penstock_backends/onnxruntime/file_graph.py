"""`FileGraph`: the tensors of an ONNX file as the file itself says them, without ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, NoReturn

from penstock.backend import Array, DataType, InternalError, ModelConfig, ModelLoadError
from penstock_backends.tensor_models import Graph, GraphTensor

_VARINT, _FIXED64, _BYTES, _GROUP, _FIXED32 = 0, 1, 2, 3, 5
_WIRES: Final = (_VARINT, _FIXED64, _BYTES, _FIXED32)

_MODEL_VERSION, _MODEL_GRAPH = 1, 7
_GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_SPARSE = 5, 11, 12, 15
_INITIALIZER_NAME, _INITIALIZER_EXTERNAL = 8, 13

_OVERRIDABLE_SINCE: Final = 4
"""The version of the format since which an input may have a value in the graph."""
_MOST_FIELDS: Final = 1 << 20
_LONGEST_NAME: Final = 1 << 12

_DATATYPES: Final = {
    1: DataType.FP32,
    2: DataType.UINT8,
    3: DataType.INT8,
    4: DataType.UINT16,
    5: DataType.INT16,
    6: DataType.INT32,
    7: DataType.INT64,
    8: DataType.BYTES,
    9: DataType.BOOL,
    10: DataType.FP16,
    11: DataType.FP64,
    12: DataType.UINT32,
    13: DataType.UINT64,
    16: DataType.BF16,
}
"""ONNX's number of a datatype -> ours."""

_Dims = tuple[int, ...]


class UnknownFormError(Exception):
    """The file has what is not understood here, and may be whole."""


class FileGraph(Graph):
    """The tensors that an ONNX file declares. The shapes of its outputs are those of the
    configuration, as ONNX Runtime works out for itself what they are.

    Raises `ModelLoadError` for a file that is none or ends too soon, and `UnknownFormError`.
    """

    engine = "ONNX"

    def __init__(self, config: ModelConfig, path: Path) -> None:
        self._config, self._path = config, path
        self._left = _MOST_FIELDS
        self.inputs, self.defaults, self.outputs = {}, {}, {}
        try:
            with path.open("rb") as file:
                self._read(file, path.stat().st_size)
        except OSError as error:
            self._refuse(f"cannot be read: {error.strerror}")

    def run(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        raise InternalError("a file only describes a model")

    def _refuse(self, why: str) -> NoReturn:
        raise ModelLoadError(f"failed to load model '{self._config.name}': '{self._path}' {why}")

    def _read(self, file: BinaryIO, size: int) -> None:
        version, graph = 0, range(0)
        for number, wire, value in self._fields(file, size):
            if number == _MODEL_VERSION and wire == _VARINT:
                version = value
            elif number == _MODEL_GRAPH and wire == _BYTES:
                graph = range(file.tell(), file.tell() + value)
        if not graph:
            self._refuse("has no graph: it is not an ONNX file")
        file.seek(graph.start)
        valued = set[str]()
        for number, wire, value in self._fields(file, graph.stop):
            if number == _GRAPH_SPARSE:
                raise UnknownFormError
            if wire == _BYTES:
                self._add(file, number, file.tell() + value, valued)
        defaults = {name: self.inputs.pop(name) for name in valued & self.inputs.keys()}
        self.defaults = defaults if version >= _OVERRIDABLE_SINCE else {}

    def _add(self, file: BinaryIO, field: int, end: int, valued: set[str]) -> None:
        """Add a field of the graph: an input, an output, or the name of what has a value."""
        if field == _GRAPH_INITIALIZER:
            valued.add(self._initializer(file, end))
        elif field == _GRAPH_INPUT:
            name, datatype, dims = self._described(file, end)
            if dims is None:
                raise UnknownFormError
            self.inputs[name] = GraphTensor(name, datatype, dims)
        elif field == _GRAPH_OUTPUT:
            name, datatype, _ = self._described(file, end)
            self.outputs[name] = GraphTensor(name, datatype, self._declared(name))

    def _initializer(self, file: BinaryIO, end: int) -> str:
        """The name of an initializer, whose data are in the file, or there beside it."""
        name, told = "", dict[str, str]()
        for number, wire, value in self._fields(file, end):
            if number == _INITIALIZER_NAME and wire == _BYTES:
                name = self._text(file, value)
            elif number == _INITIALIZER_EXTERNAL and wire == _BYTES:
                behind = file.tell() + value
                texts = {n: self._text(file, v) for n, w, v in self._fields(file, behind) if w == 2}
                told[texts.get(1, "")] = texts.get(2, "")
        if told:
            self._check_external(told)
        return name

    def _check_external(self, told: Mapping[str, str]) -> None:
        location = told.get("location", "")
        path = PurePosixPath(location)
        if location.startswith("*"):  # in the memory of who makes a session
            raise UnknownFormError
        if not location or path.is_absolute() or ".." in path.parts or "\0" in location:
            self._refuse(f"has external data at {location!a}, which is no file beside it")
        beside = self._path.parent / path
        if not beside.is_file():
            self._refuse(f"has external data in '{location}', which is not there")
        offset, length = (told.get(key, "") or "0" for key in ("offset", "length"))
        if not all(each.isascii() and each.isdecimal() for each in (offset, length)):
            raise UnknownFormError
        if int(offset) + int(length) > beside.stat().st_size:
            self._refuse(f"has external data in '{location}', which is cut short")

    def _declared(self, name: str) -> _Dims:
        """The shape of an output in the configuration."""
        declared = self._config.outputs_by_name.get(name)
        rows = (-1,) if self._config.max_batch_size else ()
        return () if declared is None else (*rows, *declared.backend_dims)

    def _described(self, file: BinaryIO, end: int) -> tuple[str, DataType, _Dims | None]:
        """A `ValueInfoProto`: name, datatype and shape, which may be left open."""
        name, element = "", 0
        dims: _Dims | None = None
        for number, wire, value in self._fields(file, end):
            if number == 1 and wire == _BYTES:
                name = self._text(file, value)
            elif number == 2 and wire == _BYTES:
                for length in self._inside(file, file.tell() + value, 1):
                    element, dims = self._tensor_type(file, file.tell() + length)
        if element not in _DATATYPES:
            raise UnknownFormError
        return name, _DATATYPES[element], dims

    def _tensor_type(self, file: BinaryIO, end: int) -> tuple[int, _Dims | None]:
        element, dims = 0, None
        for number, wire, value in self._fields(file, end):
            if number == 1 and wire == _VARINT:
                element = value
            elif number == 2 and wire == _BYTES:
                dims = self._dims(file, file.tell() + value)
        return element, dims

    def _dims(self, file: BinaryIO, end: int) -> _Dims:
        """A `TensorShapeProto`; -1 for a length that is not told."""
        dims = []
        for length in self._inside(file, end, 1):
            told = [
                value
                for number, wire, value in self._fields(file, file.tell() + length)
                if number == 1 and wire == _VARINT
            ]
            dims.append(told[0] if told and told[0] < 1 << 63 else -1)
        return tuple(dims)

    def _text(self, file: BinaryIO, length: int) -> str:
        if length > _LONGEST_NAME:
            raise UnknownFormError
        return file.read(length).decode(errors="replace")

    def _inside(self, file: BinaryIO, end: int, wanted: int) -> Iterator[int]:
        """The lengths of fields of one number; the file stands at their bytes."""
        for number, wire, value in self._fields(file, end):
            if number == wanted and wire == _BYTES:
                yield value

    def _fields(self, file: BinaryIO, end: int) -> Iterator[tuple[int, int, int]]:
        """Number, wire type and value or length of each field; the file stands at its bytes."""
        while file.tell() < end:
            self._left -= 1
            tag = self._varint(file)
            wire, length = tag & 7, 0
            if self._left < 0 or wire == _GROUP:
                raise UnknownFormError
            if not tag >> 3 or wire not in _WIRES:
                self._refuse("is not an ONNX file, or damaged")
            if wire == _VARINT:
                value = self._varint(file)
            else:
                value = length = {_FIXED64: 8, _FIXED32: 4}.get(wire) or self._varint(file)
            behind = file.tell() + length
            if behind > end:
                self._refuse("is cut short, or not an ONNX file")
            yield tag >> 3, wire, value
            file.seek(behind)

    def _varint(self, file: BinaryIO) -> int:
        value, shift = 0, 0
        while True:
            byte = file.read(1)
            if not byte:
                self._refuse("is cut short, or not an ONNX file")
            value |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF
            shift += 7
            if shift > 63:
                self._refuse("is not an ONNX file, or damaged")
