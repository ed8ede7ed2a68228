"""A JSON decoder that works in slices, so that no step holds the GIL for long.

A decoder holds the GIL for the whole text that it is given. The long parts of a request are the
lists of its tensors: they are decoded separately, one slice at a time, by orjson.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from penstock.core.errors import InvalidRequestError
from penstock.gateway.json.long_lists import discard
from penstock.gateway.json.members import RepeatedMembers, names_of
from penstock.gateway.json.thread import give_turn

MAX_DEPTH = 100
"""The limit on nested arrays and objects (contract H-38)."""

MOST_VALUES = 1 << 20
"""The default of how many values a large text may have, see `Slicer`."""

SLICE = 1 << 18
"""Bytes that are decoded at a time; takes a millisecond or two."""

_QUARTERS = 4
_OBJECT = 8 * _QUARTERS
"""What counts as a value, in quarters of one: a string; four lists; an eighth of an object."""

Text = bytes | bytearray
Pairs = list[tuple[str, Any]]

_SPACE = rb"[ \t\r\n]*+"
_STRING = rb'%b"[^"\\]*+(?:\\.[^"\\]*+)*+"%b' % (_SPACE, _SPACE)


_LEVELS = 4
"""Levels of lists and objects in an element that is decoded with others, itself included."""


def _balanced(levels: int) -> bytes:
    """A pattern of a list or object with others in it, up to `levels` levels; brackets may differ.

    What it matches is decoded afterwards, which finds brackets that differ.
    """
    inner = b"|" + _balanced(levels - 1) if levels else b""
    return rb'[\[{](?:%b|[^"\[\]{}]++%b)*+[\]}]' % (_STRING, inner)


_DATA = re.compile(rb'"data"%b:%b\[' % (_SPACE, _SPACE))
_VALUE = rb'(?:%b|[^"\[\]{},]++|%b%b%b)' % (_STRING, _SPACE, _balanced(_LEVELS - 1), _SPACE)
_AT_ONCE = 1 << 13
"""Elements and members that are decoded at a time: of objects that takes some milliseconds."""
_ELEMENTS = re.compile(rb"(?:%b,){1,%d}" % (_VALUE, _AT_ONCE), re.DOTALL)
_LAST_ELEMENT = re.compile(rb"%b\]" % _VALUE, re.DOTALL)
_MEMBERS = re.compile(rb"(?:%b:%b,){1,%d}" % (_STRING, _VALUE, _AT_ONCE), re.DOTALL)
_LAST_MEMBER = re.compile(rb"%b:%b\}" % (_STRING, _VALUE), re.DOTALL)
_BLANK = re.compile(_SPACE)
_SCALAR = re.compile(rb"[-+.0-9A-Za-z]++")
_CLOSING = {b"[": b"]", b"{": b"}"}
_HEX = rb"[0-9a-fA-F]"
_CHARACTERS = re.compile(
    rb'[^"\\]*+(?:\\(?:[^u]|u(?:[dD][89abAB]%b{2}\\u[dD][c-fC-F]%b{2}|%b{4}))[^"\\]*+)*+'
    % (_HEX, _HEX, _HEX),
    re.DOTALL,
)
"""Whole characters of a string; where one of them is cut off or wrong, it ends before."""
_HIGH = re.compile(rb"\\u[dD][89abAB]%b{2}" % _HEX)
_BACK = 1 << 16
"""Bytes in which backslashes are counted at once."""
_ESCAPED = len(r"\ud83d")
_PAIR = 2 * _ESCAPED
_MOST_BYTES = 4
_NOT_FIRST, _LATER = 0b1100_0000, 0b1000_0000
"""Of a character in UTF-8: its bytes, and the bits by which those behind the first are known."""
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_TOO_LARGE = float(1 << 63)
_MARKS = (b'"', b"[", b"{", b"}")
"""Without these, the text of a list is numbers and literals: it can be cut at any comma."""


class UnusualError(Exception):
    """The text is invalid or of an unexpected form: decode it in one piece."""


class TooManyValuesError(InvalidRequestError):
    """A text holds more values than a request may have."""


class TooDeepError(UnusualError):
    """A text is nested deeper than `MAX_DEPTH`."""


class WrongStringError(UnusualError):
    """A long string does not go on as one from `at` on."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at


def _add_members(members: dict[str, Any], part: Mapping[str, Any]) -> list[str]:
    """Add the members of `part` that are new; the names of the others are returned."""
    repeated = []
    for name in names_of(part):  # one by one, so that other threads have turns
        if name in members:
            repeated.append(name)
        else:
            members[name] = part[name]
    return repeated


def _members(members: dict[str, Any], repeated: list[str]) -> dict[str, Any]:
    return RepeatedMembers(members, [*members, *repeated]) if repeated else members


def decode_in_slices(text: Text, as_object: Callable[[Pairs], Any]) -> Any:
    """The decoded value; `None` if `text` has to be decoded in one piece, as invalid text has.

    The lists of tensors are decoded by themselves, the rest at once. `as_object` makes an object of
    its members: a `dict`, in which the first of equal names counts.
    """
    mark, lists = secrets.token_hex(16), dict[str, list[Any]]()
    rest, at = list[Text](), 0
    try:
        while found := _DATA.search(text, at):
            begin = found.end()
            rest.append(text[at : begin - 1])
            name = f"{mark}{len(lists)}"
            lists[name], at = Slicer(text, as_object).decode_list(begin)
            rest.append(f'"{name}"'.encode())

        def with_lists(members: Pairs) -> Any:
            return as_object([(name, put_back(value, lists)) for name, value in members])

        decoder = json.JSONDecoder(object_pairs_hook=with_lists)
        return decoder.decode(as_text(b"".join([*rest, text[at:]])))
    except (UnusualError, ValueError, RecursionError):
        return None


class Slicer:
    """Incremental decoder of a large text: long lists and objects are decoded slice by slice.

    `at` is the offset up to which the text is valid: the beginning of an element or a member or, if
    `behind`, the end of one, where a comma or bracket should follow.

    Of values it takes `most`: each string, and name, is one, four lists are one, and an object is
    eight; numbers and literals count nothing. `seen` is told each part that is decoded at once, and
    its offset. Where they are `cut`, long strings and lists keep their first or last slice alone.
    """

    def __init__(
        self,
        text: Text,
        as_object: Callable[[Pairs], Any],
        most: int | None = None,
        seen: Callable[[Text, int], None] | None = None,
        *,
        cut: bool = False,
    ) -> None:
        self.at = 0
        self.behind = False
        self._text = text
        self._hook = as_object if most is None else self._counted_object
        self._as_object = as_object
        self._objects = json.JSONDecoder(object_pairs_hook=self._hook)
        self._open: list[list[Any] | dict[str, Any]] = []
        self._most = most
        self._left = 0 if most is None else most * _QUARTERS
        self._seen = seen
        self._cut = cut

    def decode(self) -> Any:
        """The value of the whole text. Raises `UnusualError`, or `ValueError` as decoders do.

        Raises `TooManyValuesError`, `TooDeepError` and `WrongStringError` as well.
        """
        value, at = self._decode_value(self._skip(0))
        self.at, self.behind = self._skip(at), True
        if self.at < len(self._text) and self._text[self.at]:  # a NUL ends the text
            discard(value)
            raise UnusualError
        return value

    @property
    def ended(self) -> bool:
        """Whether the value of the whole text is decoded."""
        return self.behind and not self._open

    def opening(self) -> bytes:
        """A short valid text that leads to the same state as the text up to `at`."""
        outer = b"".join(b'{"":' if isinstance(one, dict) else b"[" for one in self._open[:-1])
        if not self._open:
            return b""
        inner = self._open[-1]
        begun, before = (b"{", b'"":null') if isinstance(inner, dict) else (b"[", b"null")
        if self.behind:
            return outer + begun + before
        return outer + begun + (before + b"," if inner else b"")

    def drop(self) -> None:
        """Free the values decoded so far."""
        for one in self._open:
            discard(one)

    def decode_list(self, at: int) -> tuple[list[Any], int]:
        """Decode the list whose first element begins at `at`; returns it and its end."""
        values: list[Any] = []
        self._enter(values)
        text = self._text
        while True:
            give_turn()
            self.at, self.behind = at, False
            if end := _slice_end(text, at):
                part = text[at : end - 1]
                self._count(part, at)
                if self._cut:
                    values.clear()
                values += _decode_part(part, self._hook)
                at = end
            else:  # an element too long for one slice
                value, at = self._decode_value(self._skip(at))
                values.append(value)
                at = self._next(at)
            if text[at - 1 : at] == b"]":
                self._open.pop()
                return values, at
            if text[at - 1 : at] != b",":
                raise UnusualError

    def _decode_object(self, at: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        repeated: list[str] = []
        self._enter(members)
        text = self._text
        while True:
            give_turn()
            self.at, self.behind = at, False
            end = at + SLICE
            if found := _MEMBERS.match(text, at, end) or _LAST_MEMBER.match(text, at, end):
                begin, at = at, found.end()
                self._count(text[begin : at - 1], begin)
                part = self._objects.decode(as_text(b"{" + text[begin : at - 1] + b"}"))
            else:
                name, at = self._decode_name(self._skip(at))
                value, at = self._decode_value(at)
                part = {name: value}
                at = self._next(at)
            repeated += _add_members(members, part)
            if text[at - 1 : at] == b"}":
                self._open.pop()
                return _members(members, repeated), at
            if text[at - 1 : at] != b",":
                raise UnusualError

    def _decode_name(self, at: int) -> tuple[str, int]:
        """The name of a member and where its value begins."""
        if self._text[at : at + 1] != b'"':
            raise UnusualError
        name, at = self._decode_string(at + 1)
        at = self._skip(at)
        if self._text[at : at + 1] != b":":
            raise UnusualError
        return name, self._skip(at + 1)

    def _decode_value(self, at: int) -> tuple[Any, int]:
        """Decode the value that begins at `at`."""
        text = self._text
        first = bytes(text[at : at + 1])
        if first == b'"':
            return self._decode_string(at + 1)
        if first not in _CLOSING:
            found = _SCALAR.match(text, at, at + SLICE)
            if found is None or len(found[0]) == SLICE:
                raise UnusualError
            self._tell(found[0], at)
            value, length = self._objects.raw_decode(as_text(found[0]))
            if length < len(found[0]):
                raise UnusualError
            return value, found.end()
        self._spend(_OBJECT)  # also for a list: it is decoded by itself
        inside = self._skip(at + 1)
        if text[inside : inside + 1] == _CLOSING[first]:
            return ([] if first == b"[" else self._as_object([])), inside + 1
        return self.decode_list(at + 1) if first == b"[" else self._decode_object(at + 1)

    def _decode_string(self, at: int) -> tuple[str, int]:
        """Decode a string of any length; what comes before is its first quote."""
        text, parts = self._text, list[str]()
        self._spend(_QUARTERS)
        while True:
            give_turn()
            end = _whole_characters(text, at)
            try:
                part = json.loads(as_text(b"".join((b'"', text[at:end], b'"'))))
            except json.JSONDecodeError as error:
                raise WrongStringError(at) from error
            if not (self._cut and parts):
                parts.append(part)
            if text[end : end + 1] == b'"':
                return "".join(parts), end + 1
            if end == at:
                raise WrongStringError(at)
            at = end

    def _enter(self, value: list[Any] | dict[str, Any]) -> None:
        self._open.append(value)
        if len(self._open) > MAX_DEPTH:
            raise TooDeepError

    def _counted_object(self, members: Pairs) -> Any:
        self._spend(_OBJECT)
        return self._as_object(members)

    def _count(self, part: Text, at: int) -> None:
        """Count the strings and lists of a part that is decoded at once, not its objects."""
        self._tell(part, at)
        if len(self._open) > MAX_DEPTH - _LEVELS and depth(part) > MAX_DEPTH - len(self._open):
            raise TooDeepError
        if self._most is None:
            return
        quotes = part.count(b'"')
        if quotes:
            quotes -= part.count(b'\\"')
        self._spend(quotes * _QUARTERS // 2 + part.count(b"["))

    def _tell(self, part: Text, at: int) -> None:
        if self._seen is not None:
            self._seen(part, at)

    def _spend(self, cost: int) -> None:
        self._left -= cost
        if self._left < 0 and self._most is not None:
            raise TooManyValuesError(
                f"the JSON of the request has more than {self._most} values: a string counts as"
                " one, an object as eight, four lists as one, and numbers as none. Use"
                " --http-max-json-values to increase the limit, or send binary tensors."
            )

    def _skip(self, at: int) -> int:
        """The end of the white space that begins at `at`."""
        while True:
            end = at + SLICE
            found = _BLANK.match(self._text, at, end)
            assert found is not None
            at = found.end()
            if at < end:
                return at
            give_turn()

    def _next(self, at: int) -> int:
        """The offset behind the comma or bracket that follows a value."""
        self.at, self.behind = at, True
        at = self._skip(at)
        if self._text[at : at + 1] not in (b",", b"]", b"}"):
            raise UnusualError
        return at + 1


def _whole_characters(text: Text, at: int) -> int:
    """The end of the part of a string that may be decoded by itself, of a slice at most."""
    found = _CHARACTERS.match(text, at, at + SLICE)
    assert found is not None
    end = found.end()
    if end + _PAIR > at + SLICE:  # it may have been cut
        for _ in range(_MOST_BYTES - 1):
            if end < len(text) and text[end] & _NOT_FIRST == _LATER:
                end -= 1
        high = end - _ESCAPED
        if high > at and _HIGH.match(text, high) and not is_escaped(text, high):
            end = high  # its other half may follow
    return end


def is_escaped(text: Text, at: int) -> bool:
    """Whether the backslash there is itself escaped."""
    start, whole = at, False
    while start and not whole:
        begin = max(0, start - _BACK)
        part = text[begin:start]
        slashes = len(part) - len(part.rstrip(b"\\"))
        start -= slashes
        whole = slashes < len(part)
    return (at - start) % 2 == 1


def depth(data: Text, most: int = MAX_DEPTH) -> int:
    """The depth of brackets outside strings; counting stops beyond the limit."""
    found = 0
    for token in _TOKEN.finditer(data):
        if token[0] in (b"[", b"{"):
            found += 1
            if found > most:
                break
        elif token[0] in (b"]", b"}"):
            found -= 1
    return found


def as_text(data: Text) -> str:
    """Decode UTF-8; bytes that are not UTF-8 become surrogates."""
    return data.decode("utf-8", "surrogateescape")


def put_back(value: Any, lists: Mapping[str, Any]) -> Any:
    """The list that a string stands for, or the value itself."""
    return lists.get(value, value) if type(value) is str else value


def _slice_end(text: Text, at: int) -> int:
    """The offset behind the last comma of a slice or behind the list's end; 0 without either."""
    end = at + SLICE
    close = text.find(b"]", at, end)
    if not any(text.find(mark, at, end if close < 0 else close) >= 0 for mark in _MARKS):
        return (text.rfind(b",", at, end) if close < 0 else close) + 1
    found = _ELEMENTS.match(text, at, end) or _LAST_ELEMENT.match(text, at, end)
    return found.end() if found else 0


def _decode_part(part: Text, as_object: Callable[[Pairs], Any]) -> list[Any]:
    text = b"".join((b"[", part, b"]"))
    values: list[Any]
    exact = b"{" not in text  # of members with one name, orjson keeps the last
    try:
        if exact:
            values = orjson.loads(text)
            exact = _all_have_a_point(text) or not _holds_large_double(values)
    except orjson.JSONDecodeError:  # NaN, Infinity or surrogates, or invalid JSON
        exact = False
    if not exact:
        values = json.loads(as_text(text), object_pairs_hook=as_object)
    if not values:  # a comma without a value before or behind it
        raise UnusualError
    return values


def _all_have_a_point(text: Text) -> bool:
    """Whether each value is a number with a decimal point, of which it has one at most."""
    return b'"' not in text and text.count(b".") > text.count(b",")


def _holds_large_double(values: list[Any]) -> bool:
    """Whether a double may have been an integer of more than 64 bits, which orjson rounds."""
    types = set(map(type, values))
    if list in types and any(_holds_large_double(v) for v in values if type(v) is list):
        return True
    return float in types and any(type(v) is float and abs(v) >= _TOO_LARGE for v in values)
