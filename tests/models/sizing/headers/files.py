"""Files of models, written byte by byte."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path


def safetensors(tensors: Mapping[str, tuple[str, Sequence[int], int]], **metadata: str) -> bytes:
    """A file of tensors: type, shape and bytes by name."""
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, (dtype, shape, size) in tensors.items():
        offsets = [at, at + size]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at)


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def message(number: int, content: bytes) -> bytes:
    """A field with a message, a text or bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def whole(number: int, value: int) -> bytes:
    """A field with a whole number."""
    return varint(number << 3) + varint(value)


def tensor(
    dtype: int, dims: Sequence[int], *, raw: bytes | None = None, more: bytes = b""
) -> bytes:
    """A `TensorProto`."""
    head = b"".join(whole(1, size) for size in dims) + whole(2, dtype)
    return head + (message(9, raw) if raw is not None else b"") + more


def external(dtype: int, dims: Sequence[int], **entries: str) -> bytes:
    """A `TensorProto` whose data lie in another file."""
    pairs = (
        message(13, message(1, key.encode()) + message(2, text.encode()))
        for key, text in entries.items()
    )
    return tensor(dtype, dims, more=b"".join(pairs) + whole(14, 1))


def onnx(*initializers: bytes, nodes: Sequence[bytes] = ()) -> bytes:
    """A `ModelProto` whose graph has these."""
    inside = [message(1, node) for node in nodes] + [message(5, each) for each in initializers]
    return whole(1, 8) + message(7, b"".join(inside))


def gguf(
    tensors: Mapping[str, tuple[int, Sequence[int], int]],
    metadata: bytes = b"",
    entries: int = 0,
    data: int | None = None,
) -> bytes:
    """A file of tensors: number of the type, dimensions and bytes by name."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), entries) + metadata
    at = 0
    for name, (kind, dims, size) in tensors.items():
        head += struct.pack("<Q", len(name)) + name.encode()
        head += struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at)
        at += size
    return head + bytes(at if data is None else data)


def gguf_entry(key: str, value: int | str | Sequence[int]) -> bytes:
    """An entry of a GGUF file's metadata."""
    head = struct.pack("<Q", len(key)) + key.encode()
    if isinstance(value, int):
        return head + struct.pack("<II", 4, value)
    if isinstance(value, str):
        return head + struct.pack("<IQ", 8, len(value)) + value.encode()
    return head + struct.pack(f"<IIQ{len(value)}I", 9, 4, len(value), *value)


def written(path: Path, content: bytes) -> Path:
    """The file, written."""
    path.write_bytes(content)
    return path
