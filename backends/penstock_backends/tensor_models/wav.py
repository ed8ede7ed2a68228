"""Samples of a WAV file: PCM of 8, 16, 24 or 32 bits, and floats of 32 or 64."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from penstock.backend import Array, InvalidRequestError

_HEAD: Final = struct.Struct("<4sI4s")
_CHUNK: Final = struct.Struct("<4sI")
_FORMAT: Final = struct.Struct("<HHIIHH")

_PCM: Final = 1
_FLOAT: Final = 3
_EXTENSIBLE: Final = 0xFFFE
_SUBFORMAT: Final = slice(24, 26)
"""Where an extensible format has the number of the one that it stands for."""
_OTHERS: Final = {2: "ADPCM", 6: "A-law", 7: "mu-law", 17: "ADPCM", 80: "MPEG", 85: "MP3"}
_UNKNOWN_LENGTHS: Final = (0, 0xFFFF_FFFF)
"""Lengths that programs write which do not know the end yet."""

_RATES: Final = range(1_000, 768_001)
"""In Hz; of lower rates a small file would be hours long."""


@dataclass(frozen=True, slots=True)
class Wav:
    """The samples of a file as they are there; its length counts those of a channel."""

    rate: int
    """Samples of a channel in a second."""
    kind: str
    """`u1`, `i2`, `i3`, `i4`, `f4` or `f8`: the letter of numpy, and the bytes of a sample."""
    channels: int
    data: memoryview

    def __len__(self) -> int:
        return len(self.data) // (int(self.kind[1]) * self.channels)

    def first(self, samples: int) -> Wav:
        """So many samples of each channel, or all that there are."""
        return replace(self, data=self.data[: samples * int(self.kind[1]) * self.channels])

    def samples(self) -> Array:
        """[samples, channels] as FP32, integers from -1 to 1."""
        size = int(self.kind[1])
        whole = self.data[: len(self) * size * self.channels]
        if self.kind == "i3":
            values = np.zeros((len(whole) // 3, 4), np.uint8)
            values[:, 1:] = np.frombuffer(whole, np.uint8).reshape(-1, 3)
            array = values.view("<i4").reshape(-1).astype(np.float32) / 2**31
        else:
            array = np.frombuffer(whole, f"<{self.kind}").astype(np.float32)
            if self.kind == "u1":
                array = (array - 128) / 128
            elif self.kind[0] == "i":
                array /= 2 ** (8 * size - 1)
        return array.reshape(-1, self.channels)


def read_wav(content: bytes, name: str) -> Wav:
    """The head of a file that input `name` holds; raises `InvalidRequestError`."""
    try:
        return _read(memoryview(content))
    except (ValueError, struct.error) as error:
        reason = "it is cut off" if isinstance(error, struct.error) else str(error)
        raise InvalidRequestError(f"input '{name}' does not hold a WAV file: {reason}") from error


def _read(content: memoryview) -> Wav:
    begin = bytes(content[: _HEAD.size])
    if begin[:4] != b"RIFF"[: len(begin)] or begin[8:] not in (b"WAVE", b""):
        raise ValueError("it does not begin with RIFF and WAVE")
    _HEAD.unpack_from(content)  # all of it has to be there
    at, head = _HEAD.size, memoryview(b"")
    while True:
        kind, size = _CHUNK.unpack_from(content, at)
        at += _CHUNK.size
        left = len(content) - at
        if kind == b"data":
            if size in _UNKNOWN_LENGTHS:
                size = left
            if size > left:
                raise ValueError(f"it says that {size} bytes of samples follow, and {left} do")
            return _wav(head, content[at : at + size])
        if size > left:
            raise ValueError("it is cut off")
        if kind == b"fmt ":
            head = content[at : at + size]
        at += size + size % 2


def _wav(head: memoryview, data: memoryview) -> Wav:
    code, channels, rate, _, block, bits = _FORMAT.unpack_from(head)
    if code == _EXTENSIBLE:
        code = int.from_bytes(head[_SUBFORMAT], "little")
    letters = {_PCM: {8: "u1", 16: "i2", 24: "i3", 32: "i4"}, _FLOAT: {32: "f4", 64: "f8"}}
    size = block * 8 // channels if channels else 0
    kind = letters.get(code, {}).get(size)
    if kind is None:
        what = _OTHERS.get(code, {_PCM: "PCM", _FLOAT: "floats"}.get(code, f"format {code}"))
        raise ValueError(
            f"its samples are {what} of {bits} bits; PCM of 8, 16, 24 and 32 bits is read, and"
            " floats of 32 and 64"
        )
    if rate not in _RATES:
        raise ValueError(f"its rate is {rate} Hz")
    return Wav(rate, kind, channels, data)
