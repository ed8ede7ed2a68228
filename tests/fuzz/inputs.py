"""Inputs made of a corpus by chance: the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

_LONGEST = 1 << 16
_BYTES = (0, 1, 9, 10, 13, 32, 34, 44, 45, 46, 47, 91, 92, 93, 123, 125, 127, 128, 254, 255)
_NUMBERS = (
    0,
    1,
    127,
    128,
    255,
    256,
    32767,
    65535,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**64 - 1,
)


class Inputs:
    """Bytes like those of a corpus, changed in some places; sometimes anything."""

    def __init__(self, corpus: Sequence[bytes], words: Sequence[bytes], seed: int) -> None:
        self._corpus = corpus
        self._words = words or [b"\0"]
        self._random = Random(seed)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._corpus
        yield b""
        while True:
            yield self._next()

    def _next(self) -> bytes:
        chance = self._random
        data = bytearray(chance.choice(self._corpus))
        for _ in range(1 + int(chance.expovariate(0.5))):
            self._change(data)
        return bytes(data[:_LONGEST])

    def _change(self, data: bytearray) -> None:
        at = self._random.randrange(len(data) + 1)
        end = min(len(data), at + 1 + int(self._random.expovariate(0.1)))
        self._random.choice(_WAYS)(self, data, at, end)

    def _cut(self, data: bytearray, at: int, end: int) -> None:
        del data[at:end]

    def _end(self, data: bytearray, at: int, end: int) -> None:
        del data[at:]

    def _repeat(self, data: bytearray, at: int, end: int) -> None:
        data[at:at] = data[at:end] * self._random.choice((1, 2, 50))

    def _insert(self, data: bytearray, at: int, end: int) -> None:
        data[at:at] = self._random.choice(self._words)

    def _overwrite(self, data: bytearray, at: int, end: int) -> None:
        word = self._random.choice(self._words)
        data[at : at + len(word)] = word

    def _number(self, data: bytearray, at: int, end: int) -> None:
        size = self._random.choice((1, 2, 4, 8))
        number = self._random.choice(_NUMBERS) & ((1 << 8 * size) - 1)
        data[at : at + size] = number.to_bytes(size, self._random.choice(("little", "big")))

    def _splice(self, data: bytearray, at: int, end: int) -> None:
        other = self._random.choice(self._corpus)
        data[at:] = other[self._random.randrange(len(other) + 1) :]

    def _flip(self, data: bytearray, at: int, end: int) -> None:
        if at < len(data):
            data[at] ^= 1 << self._random.randrange(8)

    def _noise(self, data: bytearray, at: int, end: int) -> None:
        data[at:end] = self._random.randbytes(end - at)

    def _byte(self, data: bytearray, at: int, end: int) -> None:
        data[at : at + 1] = bytes([self._random.choice(_BYTES)])


_WAYS = (
    Inputs._cut,
    Inputs._end,
    Inputs._repeat,
    Inputs._insert,
    Inputs._overwrite,
    Inputs._number,
    Inputs._splice,
    Inputs._flip,
    Inputs._noise,
    Inputs._byte,
)
