"""Header compression (RFC 7541): the writing side, which keeps no state.

Fields are indexed in the static table or literal without indexing and without Huffman code, so
that the same fields are always the same bytes and blocks can be made beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.http2.hpack import Field
from penstock.http2.static_table import STATIC

SIZE_UPDATE = b"\x20"
"""The dynamic table has no room: how a block begins after the peer has lowered its size."""

_FIELDS = {field: index for index, field in enumerate(STATIC) if index}
_NAMES = {field[0]: index for field, index in reversed(_FIELDS.items())}


def encode(fields: Iterable[Field]) -> bytes:
    """A header block."""
    block = bytearray()
    for field in fields:
        index = _FIELDS.get(field)
        if index is not None:
            block += _written_integer(index, 7, 0x80)
            continue
        name, value = field
        index = _NAMES.get(name, 0)
        block += _written_integer(index, 4, 0)
        if not index:
            block += _written_string(name)
        block += _written_string(value)
    return bytes(block)


def _written_string(text: bytes) -> bytes:
    return _written_integer(len(text), 7, 0) + text


def _written_integer(value: int, prefix: int, flags: int) -> bytes:
    """An integer (section 5.1) behind the flags of its first byte."""
    mask = (1 << prefix) - 1
    if value < mask:
        return bytes((flags | value,))
    data = bytearray((flags | mask,))
    value -= mask
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
