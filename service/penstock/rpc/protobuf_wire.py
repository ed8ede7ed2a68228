"""Fields of protobuf messages, written by hand where building a message would cost more."""

from __future__ import annotations


def varint(value: int) -> bytes:
    """A number as protobuf writes lengths."""
    if value < 128:
        return _SMALL[value]
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def field(tag: int, value: bytes) -> bytes:
    """A length-delimited field, by the byte of its number and type."""
    return b"%c%b%b" % (tag, varint(len(value)), value)


_SMALL = [bytes((value,)) for value in range(128)]
