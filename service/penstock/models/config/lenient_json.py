"""JSON as leniently as protobuf's C++ parser reads it, for configurations in load requests (X-17).

Beyond JSON: keys may be identifiers without quotes, strings may have single quotes, hold control
characters and escape any character, and a comma may follow the last member or element.
"""

from __future__ import annotations

import re
from typing import Any

_MAX_DEPTH = 250
_CONTEXT = 20  # characters that an error shows on either side of its place

_SPACE = re.compile(r"[ \t\n\r]*")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_NUMBER = re.compile(r"-?[0-9][0-9.eE+\-xX]*")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_KEYWORDS = {"true": True, "false": False, "null": None}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

_KEY_EXPECTED = "Expected an object key or }."


def parse_lenient_json(text: str) -> Any:
    """The value of a text; raises `ValueError` with protobuf's message and the place it is about.

    Of members with the same key the last counts; lists are joined, and objects are refused.
    """
    parser = _Parser(text)
    value = parser.value(0)
    parser.end()
    return value


class _Parser:
    """Reads one value after the other; `_at` is the place of the next character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def end(self) -> None:
        """Nothing but space may follow the value."""
        if self._next():
            raise self._problem("Parsing terminated before end of input.")

    def value(self, depth: int) -> Any:
        token = self._next()
        if depth > _MAX_DEPTH:
            raise self._problem("Message too deep. Max recursion depth reached.")
        if token == "{":
            return self._object(depth)
        if token == "[":
            return self._list(depth)
        if token in ('"', "'"):
            return self._string(token)
        if number := _NUMBER.match(self._text, self._at):
            return self._number(number)
        name = _NAME.match(self._text, self._at)
        if name is None:
            raise self._problem(
                "Unexpected token." if token in tuple("}]:,") else "Expected a value."
            )
        if name[0] not in _KEYWORDS:
            raise self._problem("Unexpected token.")
        self._at = name.end()
        return _KEYWORDS[name[0]]

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self._at += 1
        while not self._took("}"):
            key = self._key()
            if not self._took(":"):
                raise self._problem("Expected : between key:value pair.")
            value = self.value(depth + 1)
            if key in members and isinstance(value, dict):
                raise self._problem(f"'{key}' is given twice.")
            former = members.get(key)
            if isinstance(former, list) and isinstance(value, list):
                value = former + value
            members[key] = value
            if not self._took(",") and self._next() != "}":
                raise self._problem("Expected , or } after key:value pair.")
        return members

    def _key(self) -> str:
        token = self._next()
        if token in ('"', "'"):
            return self._string(token)
        name = _NAME.match(self._text, self._at)
        if name is None or name[0] in _KEYWORDS:
            raise self._problem(_KEY_EXPECTED)
        self._at = name.end()
        return name[0]

    def _list(self, depth: int) -> list[Any]:
        elements: list[Any] = []
        self._at += 1
        while not self._took("]"):
            if not self._next():
                raise self._problem("Expected a value or ] within an array.")
            elements.append(self.value(depth + 1))
            if not self._took(",") and self._next() != "]":
                raise self._problem("Expected , or ] after array value.")
        return elements

    def _string(self, quote: str) -> str:
        pieces: list[str] = []
        self._at += 1
        while True:
            plain = _PLAIN[quote].match(self._text, self._at)
            assert plain is not None  # it matches nothing, too
            pieces.append(plain[0])
            self._at = plain.end()
            if self._at >= len(self._text):
                raise self._unclosed()
            if self._text[self._at] == quote:
                self._at += 1
                return "".join(pieces)
            pieces.append(self._escaped())

    def _escaped(self) -> str:
        """The character of an escape sequence, which may be a pair of surrogates."""
        kind = self._text[self._at + 1 : self._at + 2]
        if not kind:
            raise self._unclosed()
        if kind != "u":
            self._at += 2
            return _ESCAPES.get(kind, kind)
        code = self._unit()
        if 0xD800 <= code < 0xDC00:
            if not self._text.startswith("\\u", self._at):
                raise self._problem("Missing low surrogate.")
            low = self._unit()
            if not 0xDC00 <= low < 0xE000:
                raise self._problem("Invalid low surrogate.")
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        return chr(code)

    def _unit(self) -> int:
        r"""The code of a sequence `\uXXXX`."""
        digits = _HEX.match(self._text, self._at + 2)
        if digits is None:
            raise self._problem("Invalid escape sequence.")
        self._at = digits.end()
        return int(digits[0], 16)

    def _number(self, found: re.Match[str]) -> int | float:
        written = found[0]
        if re.match(r"-?0[0-9xX]", written):
            raise self._problem("Octal/hex numbers are not valid JSON values.")
        try:
            number = int(written) if written.lstrip("-").isdecimal() else float(written)
        except ValueError:
            raise self._problem("Unable to parse number.") from None
        self._at = found.end()
        return number

    def _next(self) -> str:
        """The character after any space; empty at the end of the text."""
        space = _SPACE.match(self._text, self._at)
        assert space is not None  # it matches nothing, too
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def _took(self, token: str) -> bool:
        """Whether `token` is next; it is read then."""
        found = self._next() == token
        self._at += found
        return found

    def _problem(self, message: str) -> ValueError:
        """The error at this place: the message, the text around it, and a caret below."""
        begin = max(self._at - _CONTEXT, 0)
        around = self._text[begin : self._at + _CONTEXT]
        start = "" if self._text[self._at :].strip() else "Unexpected end of string. "
        return ValueError(f"{start}{message}\n{around}\n{' ' * (self._at - begin)}^")

    @staticmethod
    def _unclosed() -> ValueError:
        return ValueError("Closing quote expected in string.")
