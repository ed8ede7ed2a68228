"""Makes `ModelInferRequest` messages by chance, field by field."""

from __future__ import annotations

import random
import struct

from penstock.rpc.infer_layout import varint

_NAMES = (b"x", b"y", b"z", b"IN", b"\xff")
_DATATYPES = (
    *(b"BOOL", b"INT8", b"INT16", b"INT32", b"INT64", b"UINT8", b"UINT16", b"UINT32", b"UINT64"),
    *(b"FP16", b"FP32", b"FP64", b"BYTES", b"BYTES", b"BF16", b"float", b""),
)
_FIELD_OF = {
    **dict.fromkeys((b"INT8", b"INT16", b"INT32"), 2),
    **dict.fromkeys((b"UINT8", b"UINT16", b"UINT32"), 4),
    b"BOOL": 1,
    b"INT64": 3,
    b"UINT64": 5,
    b"FP32": 6,
    b"FP64": 7,
    b"BYTES": 8,
}
_FIXED = {6: 4, 7: 8}
_BYTES = 8
_KEYS = (b"p", b"priority", b"timeout", b"sequence_id", b"triton_x", b"shared_memory_region")


class Messages:
    """Makes messages; `below` and `random` are those of the chance."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.random = self._chance.random

    def below(self, bound: int) -> int:
        return int(self.random() * bound)

    def next(self) -> bytes:
        """Another message."""
        kind = self.random()
        if kind < 0.03:
            return self._chance.randbytes(self.below(60))
        message = self.whole()
        if kind < 0.2:
            return self.changed(message)
        return message

    def whole(self) -> bytes:
        """A message in which every field is well formed."""
        fields = [self._input() for _ in range(self.below(4))]
        fields += [self._text(number) for number in (1, 2, 3) if self.random() < 0.5]
        fields += [self._parameter(4) for _ in range(self.below(3) * self.below(2))]
        fields += [self._output() for _ in range(self.below(3) * self.below(2))]
        fields += [self._unknown() for _ in range(self.below(2))]
        if self.random() < 0.4:
            fields += [self._field(7, self._data(40)) for _ in range(self.below(4))]
        if self.random() < 0.5:
            self._chance.shuffle(fields)
        return b"".join(fields)

    def changed(self, message: bytes) -> bytes:
        """A message with a few bytes changed, cut out or put in."""
        data = bytearray(message)
        for _ in range(1 + self.below(3)):
            at, kind = self.below(len(data) + 1), self.random()
            if kind < 0.6 and at < len(data):
                data[at] = self.below(256)
            elif kind < 0.8:
                del data[at : at + 1 + self.below(4)]
            elif kind < 0.9:
                del data[at:]
            else:
                data[at:at] = self._chance.randbytes(1 + self.below(3))
        return bytes(data)

    # -- fields -------------------------------------------------------------------------------

    def _input(self) -> bytes:
        datatype = self._chance.choice(_DATATYPES)
        parts = [self._field(1, self._chance.choice(_NAMES[:4])), self._field(2, datatype)]
        parts += [self._shape() for _ in range(self.below(3))]
        if self.random() < 0.1:
            parts.append(self._parameter(4))
        if self.random() < 0.7:
            for _ in range(1 + self.below(3) * self.below(2)):
                parts.append(self._field(5, self._contents(_FIELD_OF.get(datatype, 1))))
        if self.random() < 0.3:
            parts.append(self._unknown())
            self._chance.shuffle(parts)
        return self._field(5, b"".join(parts))

    def _shape(self) -> bytes:
        if self.random() < 0.5:
            return self._tag(3, 0) + self._number()
        return self._field(3, b"".join(self._number() for _ in range(self.below(4))))

    def _contents(self, usual: int) -> bytes:
        parts = []
        for _ in range(self.below(5)):
            field = usual if self.random() < 0.85 else 1 + self.below(9)
            parts.append(self._values(field))
        if self.random() < 0.1:
            parts.append(self._unknown())
        self._chance.shuffle(parts)
        return b"".join(parts)

    def _values(self, field: int) -> bytes:
        """Some values of a field of contents, packed or not; now and then of a wrong type."""
        if field == _BYTES or self.random() < 0.03:
            return b"".join(self._field(field, self._data(9)) for _ in range(self.below(4)))
        size = _FIXED.get(field)
        if self.random() < 0.03:
            size = None
        values = [self._value(size) for _ in range(self._length())]
        if self.random() < 0.7:
            return self._field(field, b"".join(values))
        kind = 0 if size is None else 5 if size == 4 else 1
        return b"".join(self._tag(field, kind) + value for value in values[:20])

    def _value(self, size: int | None) -> bytes:
        return self._number() if size is None else self._chance.randbytes(size)

    def _length(self) -> int:
        return self.below(300) if self.random() < 0.1 else self.below(12)

    def _parameter(self, number: int) -> bytes:
        kind = 1 + self.below(6)
        value = self._tag(kind, 0) + self._number()
        if kind in (3, 4):
            value = self._field(3, b"text") if kind == 3 else struct.pack("<Bd", 4 << 3 | 1, 0.5)
        entry = self._field(1, self._chance.choice(_KEYS)) + self._field(2, value)
        return self._field(number, entry)

    def _output(self) -> bytes:
        parameter = self._parameter(2) if self.random() < 0.2 else b""
        return self._field(6, self._field(1, self._chance.choice(_NAMES[:4])) + parameter)

    def _text(self, number: int) -> bytes:
        return self._field(number, self._chance.choice(_NAMES if self.random() < 0.1 else (b"m",)))

    def _unknown(self) -> bytes:
        number, kind = 9 + self.below(200), self.below(4)
        if kind == 0:
            return self._tag(number, 0) + self._number()
        if kind == 1:
            return self._tag(number, 1) + bytes(8)
        if kind == 2:
            return self._tag(number, 5) + bytes(4)
        return self._field(number, self._data(20))

    # -- encodings ----------------------------------------------------------------------------

    def _field(self, number: int, value: bytes) -> bytes:
        return self._tag(number, 2) + self._padded(len(value)) + value

    def _tag(self, number: int, kind: int) -> bytes:
        tag = number << 3 | kind
        return varint(tag) if self.random() < 0.98 else _overlong(tag, 5)

    def _padded(self, size: int) -> bytes:
        return varint(size) if self.random() < 0.98 else _overlong(size, 2 + self.below(4))

    def _number(self) -> bytes:
        """A varint: small, negative, of any 64 bits, longer than need be, or beyond 64 bits."""
        kind = self.random()
        if kind < 0.6:
            return varint(self.below(300))
        if kind < 0.7:
            return varint((1 << 64) - 1 - self.below(300))
        if kind < 0.9:
            return varint(self._chance.getrandbits(1 + self.below(64)))
        if kind < 0.97:
            return _overlong(self._chance.getrandbits(1 + self.below(30)), 2 + self.below(9))
        return self._chance.randbytes(9).translate(_WITH_MORE) + bytes((self.below(128),))

    def _data(self, longest: int) -> bytes:
        return self._chance.randbytes(self.below(longest + 1))


_WITH_MORE = bytes(value | 128 for value in range(256))


def _overlong(value: int, length: int) -> bytes:
    """A varint of more bytes than it needs."""
    digits = bytearray(varint(value))
    while len(digits) < length:
        digits[-1] |= 128
        digits.append(0)
    return bytes(digits)
