"""Header compression (RFC 7541): the reading side, with its dynamic table."""

from __future__ import annotations

from penstock.http2 import huffman
from penstock.http2.errors import ErrorCode, ProtocolError
from penstock.http2.static_table import STATIC

Field = tuple[bytes, bytes]
"""Name and value."""

_STATIC_SIZE = len(STATIC)
_OVERHEAD = 32
_LONGEST_INTEGER = 5  # bytes after the prefix: enough for any size that we take


class Decoder:
    """Reads the header blocks of one connection, in order.

    `changed` turns true when a block changes the state that later blocks are read with.
    """

    def __init__(self, max_table_size: int, max_list_size: int) -> None:
        self.changed = False
        self._newest_last: list[Field] = []
        self._size = 0
        self._limit = self._max_table_size = max_table_size
        self._max_list_size = max_list_size

    def decode(self, block: bytes) -> tuple[Field, ...] | None:
        """The fields of a block in order; `None` when the list is larger than allowed."""
        fields: list[Field] = []
        size = at = 0
        try:
            at = self._resize_table(block)
            end = len(block)
            while at < end:
                first = block[at]
                if first >= 0x80:
                    index, at = (first & 0x7F, at + 1) if first != 0xFF else _integer(block, at, 7)
                    field = self._indexed(index)
                elif first >= 0x40:
                    field, at = self._literal(block, at, 6)
                    self._add(field)
                else:
                    field, at = self._literal(block, at, 4)
                size += len(field[0]) + len(field[1]) + _OVERHEAD
                if size <= self._max_list_size:
                    fields.append(field)
        except IndexError:
            raise _error("header block is cut short") from None
        return tuple(fields) if size <= self._max_list_size else None

    def _resize_table(self, block: bytes) -> int:
        """Take the size updates that a block begins with; where its fields start."""
        at, end = 0, len(block)
        while at < end and block[at] & 0xE0 == 0x20:
            limit, at = _integer(block, at, 5)
            if limit > self._max_table_size:
                raise _error("dynamic table larger than allowed")
            self._limit = limit
            self._evict(0)
            self.changed = True
        return at

    def _literal(self, block: bytes, at: int, prefix: int) -> tuple[Field, int]:
        mask = (1 << prefix) - 1
        first = block[at]
        if not prefix == 6 and first & 0x20:
            raise _error("size of the dynamic table changed within a block")
        index, at = (first & mask, at + 1) if first & mask != mask else _integer(block, at, prefix)
        if index:
            name = self._indexed(index)[0]
        else:
            name, at = _string(block, at)
        value, at = _string(block, at)
        return (name, value), at

    def _indexed(self, index: int) -> Field:
        if 0 < index < _STATIC_SIZE:
            return STATIC[index]
        if not index or index - _STATIC_SIZE >= len(self._newest_last):
            raise _error("index of no field")
        return self._newest_last[_STATIC_SIZE - 1 - index]

    def _add(self, field: Field) -> None:
        size = len(field[0]) + len(field[1]) + _OVERHEAD
        self.changed = True
        self._evict(size)
        if size <= self._limit:
            self._newest_last.append(field)
            self._size += size

    def _evict(self, size: int) -> None:
        """Make room for an entry of this size."""
        while self._newest_last and self._size + size > self._limit:
            name, value = self._newest_last.pop(0)
            self._size -= len(name) + len(value) + _OVERHEAD


def _integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    """An integer (section 5.1) and where it ends."""
    mask = (1 << prefix) - 1
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    for shift in range(0, 7 * _LONGEST_INTEGER, 7):
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _error("integer without an end")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    """A string (section 5.2) and where it ends."""
    coded = block[at] & 0x80
    size = block[at] & 0x7F
    if size == 0x7F:
        size, at = _integer(block, at, 7)
    else:
        at += 1
    end = at + size
    if end > len(block):
        raise _error("string is cut short")
    text = block[at:end]
    return huffman.decode(text) if coded else text, end


def _error(reason: str) -> ProtocolError:
    return ProtocolError(ErrorCode.COMPRESSION_ERROR, reason)
