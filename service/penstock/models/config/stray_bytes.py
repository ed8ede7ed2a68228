"""Leaves bytes that are not UTF-8 out of the strings of a `config.pbtxt`, as Triton does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LITERAL = r"""(?:"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+')"""
_BETWEEN = r"(?:\s|\#[^\n]*+)*+"
_TOKEN = re.compile(
    rf"(?P<string>{_LITERAL}(?:{_BETWEEN}{_LITERAL})*+)|(?P<field>[\w.]+)|(?P<mark>[{{}}<>])|\#[^\n]*"
)
_PART = re.compile(rf"({_LITERAL})|\#[^\n]*")

_STRAY = "\udc80-\udcff"
_STRAY_BYTES = re.compile(rf"(\\[^{_STRAY}])|\\?[{_STRAY}]")
_ESCAPE = re.compile(
    rb"""\\(?:(?P<octal>[0-7]{1,3})|[xX](?P<digits>[0-9a-fA-F]{1,2})|.)|\"""", re.DOTALL
)
_SUSPECT = re.compile(rf"[{_STRAY}\\]")


@dataclass(frozen=True, slots=True)
class StrayBytes:
    """A string that had bytes which are not UTF-8: its line, and its key as a path of fields."""

    line: int
    key: str


def without_stray_bytes(content: bytes) -> tuple[str, list[StrayBytes]]:
    """The text with strings that are UTF-8, and those that were not, each on its line as before.

    Outside of strings such bytes are escaped: comments may have them, the parser refuses others.
    """
    text = content.decode("utf-8", "surrogateescape")
    found: list[StrayBytes] = []
    parts: list[str] = []
    copied, line = 0, 1
    for start, string, key in _strings(text) if _SUSPECT.search(text) else ():
        if (cleaned := _cleaned(string)) is not None:
            line += text.count("\n", copied, start)
            found.append(StrayBytes(line, key))
            newlines = "\n" * string.count("\n")
            parts += text[copied:start], f'"{cleaned}"', newlines
            copied = start + len(string)
            line += len(newlines)
    text = "".join((*parts, text[copied:]))
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"), found


def _strings(text: str) -> Iterator[tuple[int, str, str]]:
    """Where each string stands, its literals, and its key: a path of fields and keys of maps."""
    path: list[str] = []
    field = ""
    for token in _TOKEN.finditer(text):
        value = token.group()
        if token["field"]:
            field = value
        elif token["string"]:
            yield token.start(), value, ".".join((*path, field))
            if field == "key" and path:
                path[-1] += f"[{_shown(value)}]"
        elif value in ("{", "<"):
            path.append(field)
        elif token["mark"] and path:
            path.pop()


def _cleaned(string: str) -> str | None:
    """What stands in a string without bytes that are not UTF-8; `None` if it has none.

    Escapes stay, but for those of bytes, of which several may be one character.
    """
    literals = _literals(string)
    kept = [_STRAY_BYTES.sub(r"\1", each) for each in literals]
    content = b"".join(_ESCAPE.sub(_unescaped, each.encode()) for each in kept)
    cleaned = content.decode("utf-8", "ignore")
    return cleaned if kept != literals or cleaned.encode() != content else None


def _unescaped(found: re.Match[bytes]) -> bytes:
    """The byte of an escape; ASCII stays escaped, and so do quotes, as literals become one."""
    octal, digits, whole = found["octal"], found["digits"], found[0]
    if octal or digits:
        number = int(octal, 8) if octal else int(digits, 16)
        if number <= 0xFF:
            return b"\\%03o" % number if number < 0x80 else bytes([number])
    return b'\\"' if whole == b'"' else whole


def _literals(string: str) -> list[str]:
    """What stands between the quotes, without comments between literals."""
    return [part[1][1:-1] for part in _PART.finditer(string) if part[1]]


def _shown(string: str) -> str:
    return "".join(_literals(string)).encode("utf-8", "surrogateescape").decode("utf-8", "ignore")
