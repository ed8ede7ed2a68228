"""HPACK, the header compression of HTTP/2 (RFC 7541): decoder, encoder, and a header cache.

The encoder keeps no state: it indexes fields in the static table or writes them as literals without
indexing and without Huffman code, so that the same fields are always the same bytes and
constant blocks can be encoded in advance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from penstock.http2.frames import ErrorCode, ProtocolError

_TABLE = """
:authority | :method=GET | :method=POST | :path=/ | :path=/index.html | :scheme=http |
:scheme=https | :status=200 | :status=204 | :status=206 | :status=304 | :status=400 |
:status=404 | :status=500 | accept-charset | accept-encoding=gzip, deflate | accept-language
| accept-ranges | accept | access-control-allow-origin | age | allow | authorization |
cache-control | content-disposition | content-encoding | content-language | content-length |
content-location | content-range | content-type | cookie | date | etag | expect | expires |
from | host | if-match | if-modified-since | if-none-match | if-range | if-unmodified-since
| last-modified | link | location | max-forwards | proxy-authenticate | proxy-authorization
| range | referer | refresh | retry-after | server | set-cookie | strict-transport-security
| transfer-encoding | user-agent | vary | via | www-authenticate
"""


def _field(row: str) -> tuple[bytes, bytes]:
    name, _, value = row.strip().partition("=")
    return name.encode(), value.encode()


STATIC = ((b"", b""), *map(_field, _TABLE.split("|")))


_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a08"
    "0b080606060505050606060606060607080f060c0a0d060707070707070707070707070707070707070707"
    "07070807080d130d0e060f05060506050606060507070606060506070605050607070707070f0b0e0d1c14"
    "16141416161617161717171717181718181617181717171715161716171718161514161617171517161618"
    "15161717151516151716171714161616171616171a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b"
    "1815151a1a1c1b1b1b14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a1e"
)
"""Bits of each symbol's Huffman code; codes count up by length, then by symbol."""
_EOS = 256
_ROOT = 1
_COMPLETE = frozenset((1 << bits) - 1 for bits in range(1, 9))
"""States in which a string may end: up to seven bits of padding, all ones."""


def decode_huffman(data: bytes) -> bytes:
    """Decode a Huffman-coded string."""
    state = _ROOT
    decoded = bytearray()
    for byte in data:
        state, symbols = _STEPS[state << 8 | byte]
        decoded += symbols
    if state not in _COMPLETE:
        raise ProtocolError(ErrorCode.COMPRESSION_ERROR, "Huffman code with a wrong end")
    return bytes(decoded)


class _Steps(dict[int, tuple[int, bytes]]):
    """Transitions of the Huffman decoder: (state, byte) to next state and decoded symbols.

    A state is the bits read so far of a symbol, behind a leading one. Transitions are computed on
    first use; there are at most 65,536.
    """

    def __init__(self) -> None:
        super().__init__()
        self._symbols: dict[int, int] = {}
        code = length = 0
        for symbol in sorted(range(len(_LENGTHS)), key=lambda symbol: _LENGTHS[symbol]):
            code <<= _LENGTHS[symbol] - length
            length = _LENGTHS[symbol]
            self._symbols[1 << length | code] = symbol
            code += 1

    def __missing__(self, key: int) -> tuple[int, bytes]:
        state, byte = key >> 8, key & 0xFF
        symbols = bytearray()
        for bit in range(7, -1, -1):
            state = state << 1 | byte >> bit & 1
            symbol = self._symbols.get(state)
            if symbol == _EOS:
                raise ProtocolError(ErrorCode.COMPRESSION_ERROR, "Huffman code with an end symbol")
            if symbol is not None:
                symbols.append(symbol)
                state = _ROOT
        self[key] = state, bytes(symbols)
        return self[key]


_STEPS = _Steps()


Field = tuple[bytes, bytes]
"""Name and value."""

_STATIC_SIZE = len(STATIC)
_OVERHEAD = 32
_LONGEST_INTEGER = 5  # bytes after the prefix: enough for any size that is accepted


class Decoder:
    """Decodes the header blocks of one connection, in order.

    `changed` turns true when a block changes the dynamic table, on which later blocks depend.
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
        """Apply the size updates at the start of a block; returns where its fields begin."""
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
            raise _error("index of a field that does not exist")
        return self._newest_last[_STATIC_SIZE - 1 - index]

    def _add(self, field: Field) -> None:
        size = len(field[0]) + len(field[1]) + _OVERHEAD
        self.changed = True
        self._evict(size)
        if size <= self._limit:
            self._newest_last.append(field)
            self._size += size

    def _evict(self, size: int) -> None:
        """Evict the oldest entries until one of `size` fits."""
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
    return decode_huffman(text) if coded else text, end


def _error(reason: str) -> ProtocolError:
    return ProtocolError(ErrorCode.COMPRESSION_ERROR, reason)


SIZE_UPDATE = b"\x20"
"""A size update to 0: begins the first block after the peer has lowered the table size."""

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


T = TypeVar("T")

_LONGEST = 512
_LARGEST = 2048
_MOST = 256


class HeaderCache(Generic[T]):
    """A cache of decoded header blocks: an equal block is decoded and parsed once.

    The meaning of a block depends on the dynamic table. So only blocks that leave the table as it
    is are cached, and the cache is cleared when one changes it. Blocks of more than 512 bytes, or
    whose fields take more than 2 KiB, are not cached, and at most 256 are. `read` parses the
    decoded fields (`None` for too many); its exceptions are not cached.
    """

    def __init__(self, decoder: Decoder, read: Callable[[tuple[Field, ...] | None], T]) -> None:
        self._decoder = decoder
        self._read = read
        self._cache: dict[bytes, T] = {}

    def decode(self, block: bytes) -> T:
        """The parsed fields of a block; raises `ProtocolError` when it cannot be decoded."""
        parsed = self._cache.get(block)
        if parsed is not None:
            return parsed
        decoder = self._decoder
        fields = decoder.decode(block)
        if decoder.changed:
            decoder.changed = False
            self._cache.clear()
            return self._read(fields)
        parsed = self._read(fields)
        if fields is not None and len(block) <= _LONGEST and _size(fields) <= _LARGEST:
            if len(self._cache) >= _MOST:
                self._cache.clear()  # blocks that never repeat must not occupy it for good
            self._cache[block] = parsed
        return parsed

    def decode_uncached(self, block: bytes) -> tuple[Field, ...] | None:
        """The fields of a block that opens no stream, such as trailers."""
        fields = self._decoder.decode(block)
        if self._decoder.changed:
            self._decoder.changed = False
            self._cache.clear()
        return fields


def _size(fields: tuple[Field, ...]) -> int:
    return sum(len(name) + len(value) for name, value in fields)
