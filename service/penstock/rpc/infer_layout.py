"""The layout of `ModelInferRequest` messages: where their fields lie, before they are parsed.

protobuf parses a message in one piece, some 20 ms for each MiB of small fields, and its parts
become Python's objects afterwards. So the fields are counted first, in steps, and the contents of
tensors, of any size, are left out of what protobuf parses.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from penstock.core.errors import InvalidRequestError
from penstock.core.request_limits import MOST_PARAMETERS, MOST_TENSORS
from penstock.core.turns import Steps

Span = tuple[int, int]
"""Where a part of a message begins and ends."""

_VARINT, _I64, _DELIMITED, _I32 = 0, 1, 2, 5
_NAMES = (0x0A, 0x12, 0x1A)  # fields 1 to 3: model_name, model_version, id
_PARAMETER, _INPUT, _OUTPUT, _RAW = 0x22, 0x2A, 0x32, 0x3A  # fields 4 to 7
_CONTENTS = 0x2A  # field 5 of an input
_SMALL = [bytes((value,)) for value in range(128)]
_EMPTY_CONTENTS = b"\x2a\x00"
_BOUNDS = {
    _PARAMETER: ("parameters", MOST_PARAMETERS),
    _INPUT: ("inputs", MOST_TENSORS),
    _OUTPUT: ("outputs", MOST_TENSORS),
    _RAW: ("raw input contents", MOST_TENSORS),
}

_STEP = 1024
"""Fields of a step: a millisecond or less."""
_MOST_FIELDS = 1 << 18
"""The most fields of a message, those of its inputs among them."""
_LARGEST_HEAD = 4 << 20
"""The most bytes of a message without its tensors' contents."""
_LONGEST_NAMES = 64 << 10
"""Bytes of a message's names up to which they are read from one that is refused."""
_FEW_CONTENTS = 64
"""Bytes of an input's typed contents up to which they stay in the head."""
_MOST_PIECES = 1 << 12
"""The most fields that typed contents are in, above that size; an encoder makes one of an input."""
_LONGEST_VARINT, _LONGEST_TAG = 10, 5
_LARGEST_TAG = (1 << 32) - 1


class TooManyError(InvalidRequestError):
    """A message holds more than one may; `names` are its fields 1 to 3, as far as it was read."""

    def __init__(self, message: str, names: bytes) -> None:
        super().__init__(message)
        self.names = names


class Layout:
    """The layout of one message.

    `head` is the message without contents of tensors, `raw` where its raw contents lie, in order,
    and `typed` where the typed ones do, by the number of the input, but for those of few bytes. An
    input that has some keeps an empty field in the head. `plain`: the raw contents follow the head,
    and that is all.
    """

    def __init__(self, message: memoryview) -> None:
        self.raw: list[Span] = []
        self.typed: dict[int, list[Span]] = {}
        self.plain = True
        self._message = message
        self._kept: list[memoryview | bytes] = []
        self._kept_to = 0  # where in the message
        self._left_out = self._added = 0  # bytes
        self._names: dict[int, memoryview] = {}
        self._counts = dict.fromkeys(_BOUNDS, 0)
        self._fields = self._pieces = 0

    @property
    def head(self) -> bytes:
        return b"".join((*self._kept, self._message[self._kept_to :]))

    def read(self) -> Steps[Layout]:
        """Find the fields. Raises `DecodeError`, and `TooManyError` for more than are parsed."""
        for tag, start, begin, end in fields_of(self._message, 0, len(self._message)):
            self._count(tag)
            if tag == _INPUT:
                for _ in self._read_input(start, begin, end):
                    yield
            else:
                self._read_field(tag, start, begin, end)
            if tag != _RAW and self.raw:
                self.plain = False
            if end - self._left_out > _LARGEST_HEAD:
                raise self._too_many(
                    f"request has more than {_LARGEST_HEAD} bytes besides the contents of tensors"
                )
            if not self._fields % _STEP:
                yield
        return self

    def _read_field(self, tag: int, start: int, begin: int, end: int) -> None:
        if tag == _RAW:
            self.raw.append((begin, end))
            self._leave_out(start, end)
        elif tag in _NAMES and end - begin <= _LONGEST_NAMES:
            self._names[tag] = self._message[start:end]  # the last one counts

    def _read_input(self, start: int, begin: int, end: int) -> Iterator[None]:
        """Find the typed contents of the input that starts at `start`."""
        spans: list[Span] = []
        kept: list[memoryview | bytes] = []
        at, size = begin, 0
        for tag, field, inner, after in fields_of(self._message, begin, end):
            self._count(0)
            if tag == _CONTENTS:
                self._count_piece(len(spans))
                size += after - inner
                spans.append((inner, after))
                kept.append(self._message[at:field])
                at = after
            if not self._fields % _STEP:
                yield
        if size > _FEW_CONTENTS:
            kept += self._message[at:end], _EMPTY_CONTENTS
            self.typed[self._counts[_INPUT] - 1] = spans
            self._replace(start, end, kept)

    def _count(self, tag: int) -> None:
        self._fields += 1
        if self._fields > _MOST_FIELDS:
            raise self._too_many(f"request has more than {_MOST_FIELDS} fields")
        if tag in _BOUNDS:
            count = self._counts[tag] = self._counts[tag] + 1
            kind, most = _BOUNDS[tag]
            if count > most:
                raise self._too_many(
                    f"request has {count} {kind} or more, which exceeds the maximum allowed value"
                    f" of {most}"
                )

    def _count_piece(self, before: int) -> None:
        """Count one more field of typed contents; the first of an input is one of the inputs."""
        self._pieces += before > 0
        if self._pieces > _MOST_PIECES:
            raise self._too_many(f"request has typed contents in more than {_MOST_PIECES} pieces")

    def _too_many(self, text: str) -> TooManyError:
        return TooManyError(text, b"".join(self._names.values()))

    def _leave_out(self, start: int, end: int) -> None:
        if start > self._kept_to:
            self._kept.append(self._message[self._kept_to : start])
        self._kept_to = end
        self._left_out += end - start

    def _replace(self, start: int, end: int, parts: list[memoryview | bytes]) -> None:
        """Keep an input in the head, of which these parts are left."""
        self.plain = False
        self._leave_out(start, end)
        size = sum(map(len, parts))
        self._kept += bytes((_INPUT,)), varint(size), *parts
        self._left_out -= size


def varint(value: int) -> bytes:
    """A number as a protobuf varint."""
    if value < 128:
        return _SMALL[value]
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def fields_of(message: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields between two offsets: the tag of each, its start, and its value's begin and end.

    Raises `DecodeError`, also for groups, which messages of the protocol do not have.
    """
    while at < end:
        start = at
        tag, at = _read_varint(message, at, end, _LONGEST_TAG)
        kind, begin = tag & 7, at
        if not 7 < tag <= _LARGEST_TAG:
            raise DecodeError(f"tag {tag}")
        if kind == _DELIMITED:
            size, begin = _read_varint(message, at, end)
            at = begin + size
        elif kind == _VARINT:
            at = _read_varint(message, at, end)[1]
        elif kind in (_I32, _I64):
            at += 4 if kind == _I32 else 8
        else:
            raise DecodeError(f"wire type {kind}")
        if at > end:
            raise DecodeError("a field ends behind its message")
        yield tag, start, begin, at


def first_raw(beginning: memoryview) -> int:
    """Offset of the first raw contents, given the first bytes of a message; 0 if beyond them."""
    return _first(_RAW, beginning)[0]


def model_name(beginning: memoryview) -> str:
    """The first name of a model in the first bytes of a message; empty if it is beyond them."""
    at, size = _first(_NAMES[0], beginning)
    name = bytes(beginning[at : at + size]).decode("utf-8", "replace")
    return name if len(beginning) - at >= size else ""


def _first(tag: int, beginning: memoryview) -> tuple[int, int]:
    """Where the first field of this tag begins, behind its length, and that length; else 0."""
    at, end = 0, len(beginning)
    for _ in range(_STEP):
        if at >= end or beginning[at] & 7 != _DELIMITED or beginning[at] >= 0x80:
            return 0, 0
        found = beginning[at]
        try:
            size, at = _read_varint(beginning, at + 1, end)
        except DecodeError:
            return 0, 0
        if found == tag:
            return at, size
        at += size
    return 0, 0


def _read_varint(
    message: memoryview, at: int, end: int, longest: int = _LONGEST_VARINT
) -> tuple[int, int]:
    """A number of at most so many bytes, and where it ends."""
    value = shift = 0
    for position in range(at, min(at + longest, end)):
        byte = message[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    raise DecodeError("a number has no end")
