"""A JSON decoder that works in slices, so that no step holds the GIL for long.

A decoder holds the GIL for the whole text that it is given. The long parts of a request are the
lists of its tensors: they are decoded separately, one slice at a time, by orjson.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from penstock.gateway.json.thread import give_turn

_SLICE = 1 << 18
"""Bytes that are decoded at a time; takes a millisecond or two."""

_PART = 1 << 16
"""Elements that are converted or freed at a time."""

_FEW = 1 << 8
"""Elements in a list or object that may be freed with the one that holds it."""

Text = bytes | bytearray
Pairs = list[tuple[str, Any]]

_SPACE = rb"[ \t\r\n]*+"
_STRING = rb'%b"[^"\\]*+(?:\\.[^"\\]*+)*+"%b' % (_SPACE, _SPACE)


def _balanced(levels: int) -> bytes:
    """A pattern of a list or object with others in it, up to `levels` levels; brackets may differ.

    What it matches is decoded afterwards, which finds brackets that differ.
    """
    inner = b"|" + _balanced(levels - 1) if levels else b""
    return rb'[\[{](?:%b|[^"\[\]{}]++%b)*+[\]}]' % (_STRING, inner)


_DATA = re.compile(rb'"data"%b:%b\[' % (_SPACE, _SPACE))
_VALUE = rb'(?:%b|[^"\[\]{},]++|%b%b%b)' % (_STRING, _SPACE, _balanced(3), _SPACE)
_ELEMENTS = re.compile(rb"(?:%b,)+" % _VALUE, re.DOTALL)
_LAST_ELEMENT = re.compile(rb"%b\]" % _VALUE, re.DOTALL)
_MEMBERS = re.compile(rb"(?:%b:%b,)+" % (_STRING, _VALUE), re.DOTALL)
_LAST_MEMBER = re.compile(rb"%b:%b\}" % (_STRING, _VALUE), re.DOTALL)
_NAME = re.compile(rb"(%b):%b" % (_STRING, _SPACE), re.DOTALL)
_BLANK = re.compile(_SPACE)
_EMPTY = {b"[": re.compile(_SPACE + rb"\]"), b"{": re.compile(_SPACE + rb"\}")}
_NEXT = re.compile(_SPACE + rb"([,\]}])")
_CONTROL = re.compile(rb"[\x00-\x1f]")
_TOO_LARGE = float(1 << 63)
_MARKS = (b'"', b"[", b"{", b"}")
"""Without these, the text of a list is numbers and literals: it can be cut at any comma."""


class UnusualError(Exception):
    """The text is invalid or of an unexpected form: decode it in one piece."""


class RepeatedMembers(dict[str, Any]):
    """The members of an object that names some of them again: the first of equal names counts."""

    def __init__(self, members: Mapping[str, Any], names: Sequence[str]) -> None:
        super().__init__(members)
        self.names = names
        """The names of all members, those that come again included."""


def names_of(members: Mapping[str, Any]) -> Iterable[str]:
    """The names of an object's members, as often as they are in the text."""
    return members.names if isinstance(members, RepeatedMembers) else members


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
    """

    def __init__(self, text: Text, as_object: Callable[[Pairs], Any]) -> None:
        self.at = 0
        self.behind = False
        self._text = text
        self._hook = as_object
        self._objects = json.JSONDecoder(object_pairs_hook=as_object)
        self._open: list[list[Any] | dict[str, Any]] = []

    def decode(self) -> Any:
        """The value of the whole text. Raises `UnusualError`, or `ValueError` as decoders do."""
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
        self._open.append(values)
        text = self._text
        while True:
            give_turn()
            self.at, self.behind = at, False
            if end := _slice_end(text, at):
                values += _decode_part(text[at : end - 1], self._hook)
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
        self._open.append(members)
        text = self._text
        while True:
            give_turn()
            self.at, self.behind = at, False
            end = at + _SLICE
            if found := _MEMBERS.match(text, at, end) or _LAST_MEMBER.match(text, at, end):
                begin, at = at, found.end()
                part = self._objects.decode(as_text(b"{" + text[begin : at - 1] + b"}"))
            elif found := _NAME.match(text, at, end):
                name = json.loads(as_text(found[1]))
                value, at = self._decode_value(found.end())
                part = {name: value}
                at = self._next(at)
            else:
                raise UnusualError
            repeated += _add_members(members, part)
            if text[at - 1 : at] == b"}":
                self._open.pop()
                return _members(members, repeated), at
            if text[at - 1 : at] != b",":
                raise UnusualError

    def _decode_value(self, at: int) -> tuple[Any, int]:
        """Decode the list, object or string that begins at `at`."""
        first = bytes(self._text[at : at + 1])
        if first == b'"':
            return self._decode_string(at + 1)
        if first not in _EMPTY:
            raise UnusualError
        if found := _EMPTY[first].match(self._text, at + 1):
            return ([] if first == b"[" else {}), found.end()
        return self.decode_list(at + 1) if first == b"[" else self._decode_object(at + 1)

    def _decode_string(self, at: int) -> tuple[str, int]:
        """Decode a string without escapes, of any length; what comes before is its first quote."""
        text = self._text
        end = text.find(b'"', at)
        if end < 0 or text.find(b"\\", at, end) >= 0:
            raise UnusualError
        for start in range(at, end, _SLICE):
            if _CONTROL.search(text, start, min(end, start + _SLICE)):
                raise UnusualError
        return as_text(text[at:end]), end + 1

    def _skip(self, at: int) -> int:
        found = _BLANK.match(self._text, at)
        assert found is not None
        return found.end()

    def _next(self, at: int) -> int:
        """The offset behind the comma or bracket that follows a value."""
        self.at, self.behind = at, True
        if not (found := _NEXT.match(self._text, at)):
            raise UnusualError
        return found.end()


def as_text(data: Text) -> str:
    """Decode UTF-8; bytes that are not UTF-8 become surrogates."""
    return data.decode("utf-8", "surrogateescape")


def put_back(value: Any, lists: Mapping[str, Any]) -> Any:
    """The list that a string stands for, or the value itself."""
    return lists.get(value, value) if type(value) is str else value


def _slice_end(text: Text, at: int) -> int:
    """The offset behind the last comma of a slice or behind the list's end; 0 without either."""
    end = at + _SLICE
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


def slices(values: list[Any]) -> Iterator[list[Any]]:
    """A list in slices, each converted by one call in a millisecond or two."""
    if len(values) <= _PART:
        yield values
        return
    for at in range(0, len(values), _PART):
        give_turn()
        yield values[at : at + _PART]


def discard(value: Any) -> None:
    """Empty a list or object, and those in it: freeing millions of values at once holds the GIL."""
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            while value:
                todo.append(value.popitem()[1])
        elif type(value) is list:
            nested = bool(value) and type(value[0]) in (list, dict)
            while value:
                if nested:
                    todo += [
                        one
                        for one in value[-_PART:]
                        if type(one) in (list, dict) and len(one) > _FEW
                    ]
                del value[-_PART:]
                give_turn()


def _all_have_a_point(text: Text) -> bool:
    """Whether each value is a number with a decimal point, of which it has one at most."""
    return b'"' not in text and text.count(b".") > text.count(b",")


def _holds_large_double(values: list[Any]) -> bool:
    """Whether a double may have been an integer of more than 64 bits, which orjson rounds."""
    types = set(map(type, values))
    if list in types and any(_holds_large_double(v) for v in values if type(v) is list):
        return True
    return float in types and any(type(v) is float and abs(v) >= _TOO_LARGE for v in values)
