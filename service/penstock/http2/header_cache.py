"""Header blocks and what they mean, remembered where the state of compression allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.http2.hpack import Decoder, Field

T = TypeVar("T")

_LONGEST = 512
_LARGEST = 2048
_MOST = 256


class HeaderBlocks(Generic[T]):
    """Reads header blocks; the same block in the same state of the decoder is read once.

    The bytes of a block mean something only for one state of the dynamic table. So a block is
    remembered if it changed nothing, and all are forgotten when one changes anything; a short one
    that stands for much is not, nor are there ever more than a few. `read`
    turns the fields, or `None` for too many of them, into what the user of the connection needs;
    whatever it raises is not remembered.
    """

    def __init__(self, decoder: Decoder, read: Callable[[tuple[Field, ...] | None], T]) -> None:
        self._decoder = decoder
        self._read = read
        self._known: dict[bytes, T] = {}

    def read(self, block: bytes) -> T:
        """What a block means; raises `ProtocolError` when it cannot be decoded."""
        meaning = self._known.get(block)
        if meaning is not None:
            return meaning
        decoder = self._decoder
        fields = decoder.decode(block)
        if decoder.changed:
            decoder.changed = False
            self._known.clear()
            return self._read(fields)
        meaning = self._read(fields)
        if fields is not None and len(block) <= _LONGEST and _size(fields) <= _LARGEST:
            if len(self._known) >= _MOST:
                self._known.clear()  # blocks that differ each time must not keep others out
            self._known[block] = meaning
        return meaning

    def skip(self, block: bytes) -> tuple[Field, ...] | None:
        """The fields of a block that opens no stream."""
        fields = self._decoder.decode(block)
        if self._decoder.changed:
            self._decoder.changed = False
            self._known.clear()
        return fields


def _size(fields: tuple[Field, ...]) -> int:
    return sum(len(name) + len(value) for name, value in fields)
