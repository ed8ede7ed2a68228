"""msgpack of plain values, as a model process sends them to the server.

By a package where the process's environment has one, else by code of ours: an engine's own
environment need not have any of the server's. What a package refuses, ours encodes as well as it
can: a text that is not valid Unicode with escapes, a number of numpy as the number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np

_DEEPEST = 64
"""Levels of nested values; plain ones have few."""


def encode_plainly(value: Any) -> bytes:
    """msgpack of a plain value; raises `ValueError` for any other, and for larger numbers."""
    out: list[bytes] = []
    _encode(value, out, 0)
    return b"".join(out)


def _encode(value: Any, out: list[bytes], depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError("values are nested too deeply to be sent")
    if value is None or value is True or value is False:
        out.append(_CONSTANTS[value])
    elif isinstance(value, int):
        out.append(_integer(int(value)))
    elif isinstance(value, float):
        out.append(struct.pack(">Bd", 0xCB, value))
    elif isinstance(value, str):
        data = value.encode("utf-8", "backslashreplace")
        out.append(_head(len(data), _TEXT) + data)
    else:
        _encode_other(value, out, depth + 1)


def _encode_other(value: Any, out: list[bytes], depth: int) -> None:
    if isinstance(value, tuple | list):
        out.append(_head(len(value), _LIST))
        for one in value:
            _encode(one, out, depth)
    elif isinstance(value, dict):
        out.append(_head(len(value), _MAP))
        for one in chain.from_iterable(value.items()):
            _encode(one, out, depth)
    elif isinstance(value, np.generic):
        _encode(value.item(), out, depth)
    elif isinstance(value, bytes | bytearray | memoryview):
        out.append(_head(len(value), _BYTES) + value)
    else:
        raise ValueError(f"{type(value).__name__} is not a plain value, which could be sent")


_CONSTANTS = {None: b"\xc0", False: b"\xc2", True: b"\xc3"}

# Of each kind the short form: its first byte, and lengths below which it holds; then the first
# bytes of the forms with a length of 1, 2 and 4 bytes.
_Forms = tuple[int, int, int | None, int, int]
_TEXT: _Forms = (0xA0, 32, 0xD9, 0xDA, 0xDB)
_BYTES: _Forms = (0, 0, 0xC4, 0xC5, 0xC6)
_LIST: _Forms = (0x90, 16, None, 0xDC, 0xDD)
_MAP: _Forms = (0x80, 16, None, 0xDE, 0xDF)


def _head(size: int, forms: _Forms) -> bytes:
    short, below, one, two, four = forms
    if size < below:
        return bytes((short | size,))
    if size < 1 << 8 and one is not None:
        return bytes((one, size))
    if size < 1 << 16:
        return struct.pack(">BH", two, size)
    if size < 1 << 32:
        return struct.pack(">BI", four, size)
    raise ValueError("a value is too large to be sent")


def _integer(value: int) -> bytes:
    if -32 <= value < 128:
        return struct.pack("b", value)
    if -(1 << 63) <= value < 1 << 63:
        return struct.pack(">Bq", 0xD3, value)
    if 0 < value < 1 << 64:
        return struct.pack(">BQ", 0xCF, value)
    raise ValueError(f"the number {value} does not fit into 64 bits, so it cannot be sent")


def _fastest() -> Callable[[Any], bytes]:
    """The encoder of the environment: one that is imported quickly, or vLLM's, or ours."""
    with suppress(ImportError):
        from ormsgpack import packb

        return packb
    with suppress(ImportError):
        from msgspec.msgpack import Encoder

        return Encoder().encode
    return encode_plainly


_encode_fast = _fastest()


def dumps(value: Any) -> bytes:
    """msgpack of a plain value; raises `ValueError` for any other."""
    try:
        return _encode_fast(value)
    except (TypeError, ValueError, OverflowError):
        return encode_plainly(value)
