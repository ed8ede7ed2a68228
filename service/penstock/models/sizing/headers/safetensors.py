"""Header of a safetensors file: eight bytes of length, and JSON."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from penstock.models.sizing.headers.header_file import HeaderFile

_MOST_BYTES = 32 << 20
_NAMES = {
    "F64": "FP64",
    "F32": "FP32",
    "F16": "FP16",
    "F8_E4M3": "FP8",
    "F8_E5M2": "FP8",
    "F8_E8M0": "FP8",
    "F4": "FP4",
    "I64": "INT64",
    "I32": "INT32",
    "I16": "INT16",
    "I8": "INT8",
    "U64": "UINT64",
    "U32": "UINT32",
    "U16": "UINT16",
    "U8": "UINT8",
}
"""Data types whose name here is another."""


class _Tensor(msgspec.Struct):
    dtype: str
    data_offsets: tuple[int, int]


_ENTRIES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TENSOR = msgspec.json.Decoder(_Tensor)


def read_safetensors(path: Path) -> dict[str, int]:
    """Bytes of weights by data type. Raises `ModelLoadError`."""
    with HeaderFile.opened(path, _MOST_BYTES + 8) as file:
        entries = _entries(file, file.read(file.number("Q")))
        found, data = Counter[str](), file.size - file.at
        for name, raw in entries.items():
            if name != "__metadata__":
                dtype, size = _tensor(file, name, raw, data)
                found[dtype] += size
        if found.total() > data:
            file.fail("has tensors that overlap")
    return dict(found)


def _entries(file: HeaderFile, header: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _ENTRIES.decode(header)
    except (msgspec.DecodeError, RecursionError) as error:
        file.fail(f"has no header of safetensors: {error}")


def _tensor(file: HeaderFile, name: str, raw: msgspec.Raw, data: int) -> tuple[str, int]:
    """Data type and bytes of a tensor, which lies in the `data` bytes behind the header."""
    try:
        tensor = _TENSOR.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        file.fail(f"has a tensor {name[:80]!r} that is none: {error}")
    begin, end = tensor.data_offsets
    if not 0 <= begin <= end <= data:
        file.fail(f"is cut short, or damaged: tensor {name[:80]!r} lies behind its end")
    return _NAMES.get(tensor.dtype, tensor.dtype[:16]), end - begin
