"""Parser of the header of a GGUF file: metadata of the model."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import BinaryIO

Scalar = int | float | bool | str

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_LONGEST = 1 << 24
_ALIGNMENT = 32
_BLOCKS = {
    0: (1, 4),  # F32
    1: (1, 2),  # F16
    2: (32, 18),  # Q4_0
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    10: (256, 84),  # Q2_K
    11: (256, 110),  # Q3_K
    12: (256, 144),  # Q4_K
    13: (256, 176),  # Q5_K
    14: (256, 210),  # Q6_K
    30: (1, 2),  # BF16
}
"""Elements and bytes of a block, by the number of a tensor type."""


def read_metadata(path: Path) -> Mapping[str, Scalar]:
    """Scalar metadata by key; an array is given as its length.

    Raises `ValueError` for another format, and for a file that ends before its last tensor: the
    engine would crash on it.
    """
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError("not a GGUF file")
        try:
            return _read_head(file, path.stat().st_size)
        except (OverflowError, OSError) as error:  # a length or offset beyond any file
            raise ValueError("GGUF file is damaged") from error


def _read_head(file: BinaryIO, size: int) -> Mapping[str, Scalar]:
    _, tensors, entries = struct.unpack("<IQQ", _read_bytes(file, 20))
    metadata = dict(_entry(file) for _ in range(entries))
    end = max((_tensor_end(file) for _ in range(tensors)), default=0)
    alignment = max(1, int(metadata.get("general.alignment", _ALIGNMENT)))
    start = -(-file.tell() // alignment) * alignment
    if size < start + end:
        raise ValueError("GGUF file is cut short")
    return metadata


def context_length(metadata: Mapping[str, Scalar]) -> int | None:
    """The model's context length in tokens; `None` if not given."""
    found = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    return found if isinstance(found, int) else None


def vocabulary_size(metadata: Mapping[str, Scalar]) -> int | None:
    """The number of tokens in the vocabulary; `None` if not given."""
    found = metadata.get("tokenizer.ggml.tokens")
    return found if isinstance(found, int) else None


def _entry(file: BinaryIO) -> tuple[str, Scalar]:
    key = _string(file)
    (kind,) = struct.unpack("<I", _read_bytes(file, 4))
    return key, _array_length(file) if kind == _ARRAY else _scalar(file, kind)


def _tensor_end(file: BinaryIO) -> int:
    """The end of a tensor, in bytes from the start of the first."""
    _string(file)
    (dimensions,) = struct.unpack("<I", _read_bytes(file, 4))
    elements: int = prod(struct.unpack(f"<{dimensions}Q", _read_bytes(file, 8 * dimensions)))
    kind, offset = struct.unpack("<IQ", _read_bytes(file, 12))
    block, size = _BLOCKS.get(kind, (1, 0))
    end: int = offset + elements // block * size
    return end


def _scalar(file: BinaryIO, kind: int) -> Scalar:
    if kind == _STRING:
        return _string(file)
    layout = _layout(kind)
    value: Scalar = struct.unpack(layout, _read_bytes(file, struct.calcsize(layout)))[0]
    return value


def _array_length(file: BinaryIO) -> int:
    """Skip an array, whose elements are not needed."""
    kind, length = struct.unpack("<IQ", _read_bytes(file, 12))
    if kind == _STRING:
        for _ in range(length):
            file.seek(struct.unpack("<Q", _read_bytes(file, 8))[0], 1)
    else:
        file.seek(struct.calcsize(_layout(kind)) * length, 1)
    return int(length)


def _layout(kind: int) -> str:
    if kind not in _SCALARS:
        raise ValueError(f"unknown GGUF value type {kind}")
    return _SCALARS[kind]


def _string(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", _read_bytes(file, 8))
    return _read_bytes(file, length).decode(errors="replace")


def _read_bytes(file: BinaryIO, size: int) -> bytes:
    if size > _LONGEST:
        raise ValueError("GGUF file is damaged")
    data = file.read(size)
    if len(data) != size:
        raise ValueError("GGUF file is cut short")
    return data
