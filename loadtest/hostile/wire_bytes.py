"""Messages of protobuf and gRPC as bytes, since libraries refuse to make what is hostile."""

from __future__ import annotations

import gzip
import struct
import zlib

VARINT, LENGTH, GROUP = 0, 2, 3  # wire types
UNKNOWN = 15000  # the number of a field that no message has
_PREFIX = struct.Struct(">BI")  # compressed, length


def varint(number: int) -> bytes:
    """A number as a varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def tag(number: int, wire: int = LENGTH) -> bytes:
    """What stands before the value of a field."""
    return varint(number << 3 | wire)


def block(number: int, content: bytes = b"") -> bytes:
    """A field with a length: text, bytes, a message, packed numbers."""
    return tag(number) + varint(len(content)) + content


def filled(unit: bytes, size: int) -> bytes:
    """So many bytes of the same, or a little fewer."""
    return unit * max(size // len(unit), 1)


def map_entries(number: int, size: int) -> bytes:
    """About so many bytes of entries of a map with keys that differ, and empty values."""
    head, key, rest = block(number, block(1, b"k0000000") + block(2)).partition(b"k0000000")
    count = max(size // len(head + key + rest), 1)
    return head + (rest + head).join(b"k%07d" % n for n in range(count)) + rest


def tensor(name: str, datatype: str, shape: tuple[int, ...], contents: bytes = b"") -> bytes:
    """An input of a request, as the field of its message."""
    packed = b"".join(map(varint, shape))
    head = block(1, name.encode()) + block(2, datatype.encode()) + block(3, packed)
    return block(5, head + contents)


def framed(message: bytes, flag: int = 0) -> bytes:
    """A message with its prefix of gRPC."""
    return _PREFIX.pack(flag, len(message)) + message


def announced(size: int, sent: bytes) -> bytes:
    """The prefix of a message of this size, and fewer bytes than that."""
    return _PREFIX.pack(0, size) + sent


def squeezed(content: bytes) -> bytes:
    """Gzip, about as small as it gets."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(content) + packer.flush()


def members(count: int) -> bytes:
    """Gzip of so many members, each of which holds one byte."""
    return gzip.compress(b"\0", mtime=0) * count
