"""The GGUF file format: keys with values, then tensors, all little-endian."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

Value = str | int | float | bool | Sequence[str] | Sequence[int]

_MAGIC, _VERSION, _ALIGNMENT = b"GGUF", 3, 32
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_TENSOR_TYPES = {"float32": 0, "float16": 1}


def write_gguf(
    path: Path, metadata: Mapping[str, Value], tensors: Mapping[str, "np.ndarray"]
) -> None:
    with path.open("wb") as file:
        file.write(_MAGIC + struct.pack("<IQQ", _VERSION, len(tensors), len(metadata)))
        for key, value in metadata.items():
            file.write(_string(key) + _typed(value))
        start = 0
        for name, tensor in tensors.items():
            file.write(_tensor_entry(name, tensor, start))
            start += _aligned(tensor.nbytes)
        for tensor in tensors.values():
            _pad(file)
            file.write(tensor.tobytes())
        _pad(file)


def _tensor_entry(name: str, tensor: "np.ndarray", start: int) -> bytes:
    """Dimensions are listed from the one that varies fastest."""
    dimensions = struct.pack(f"<I{tensor.ndim}Q", tensor.ndim, *reversed(tensor.shape))
    kind = _TENSOR_TYPES[tensor.dtype.name]
    return _string(name) + dimensions + struct.pack("<IQ", kind, start)


def _typed(value: Value) -> bytes:
    if isinstance(value, Sequence) and not isinstance(value, str):
        kind = _STRING if isinstance(value[0], str) else _INT32
        items = b"".join(_plain(item, kind) for item in value)
        return struct.pack("<IIQ", _ARRAY, kind, len(value)) + items
    kind = _kind_of(value)
    return struct.pack("<I", kind) + _plain(value, kind)


def _kind_of(value: str | int | float | bool) -> int:
    if isinstance(value, bool):  # before int, of which it is a subclass
        return _BOOL
    if isinstance(value, int):
        return _UINT32
    return _FLOAT32 if isinstance(value, float) else _STRING


def _plain(value: str | int | float | bool, kind: int) -> bytes:
    if isinstance(value, str):
        return _string(value)
    return struct.pack({_UINT32: "<I", _INT32: "<i", _FLOAT32: "<f", _BOOL: "<?"}[kind], value)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _pad(file: IO[bytes]) -> None:
    position = file.tell()
    file.write(bytes(_aligned(position) - position))
