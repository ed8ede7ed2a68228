"""JSON parse errors with the texts of Triton's parser, RapidJSON."""

from __future__ import annotations

import json
import re
from math import isinf

from penstock.core.errors import InferenceError, InternalError

_SPACE = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_NUMBER = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"|-?Infinity|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)',
    re.DOTALL,
)
_LITERALS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")

_TOO_BIG = "Number too big to be stored in double."
_BAD_ESCAPE = "Invalid escape character in string."
_NO_NAME = "Missing a name for object member."
_REASONS = (
    ("Expecting property name", _NO_NAME),
    ("Expecting ':' delimiter", "Missing a colon after a name of object member."),
    ("Invalid control character", _BAD_ESCAPE),
    ("Invalid \\escape", _BAD_ESCAPE),
)
"""Errors of the standard library's decoder that map one to one."""


def explain(text: str, error: json.JSONDecodeError) -> InferenceError:
    """The error for a `JSONDecodeError` of the standard library."""
    return _error(text, *_reason(text, error.msg, error.pos))


def trailing_error(text: str, at: int) -> InferenceError:
    """The error for text after the document's value."""
    reason = "The document root must not be followed by other values.", at
    return _error(text, *(_unfinished_number(text, at) or reason))


def surrogate_error(at: int) -> InferenceError:
    """The error for a lone surrogate, at an offset in bytes."""
    return _error_at("The surrogate pair in string is invalid.", at)


def number_too_big() -> InferenceError:
    """The error for a number beyond the range of a double."""
    return InternalError(f"failed to parse the request JSON buffer: {_TOO_BIG}")


def overflow_error(text: str) -> InferenceError | None:
    """The error for the first number beyond the range of a double in valid JSON; `None` without."""
    numbers = (token for token in _NUMBER.finditer(text) if token["number"])
    large = (number.start() for number in numbers if isinf(float(number[0])))
    return next((_error(text, _TOO_BIG, at) for at in large), None)


def skip_space(text: str, at: int) -> int:
    """The end of the white space that begins at `at`."""
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _error(text: str, reason: str, at: int) -> InferenceError:
    """The error at a character; the message gives its offset in bytes."""
    return _error_at(reason, len(text[:at].encode("utf-8", "surrogateescape")))


def _error_at(reason: str, offset: int) -> InferenceError:
    return InternalError(f"failed to parse the request JSON buffer: {reason} at {offset}")


def _reason(text: str, problem: str, at: int) -> tuple[str, int]:
    if problem.startswith("Expecting value"):
        return _no_value(text, at)
    if problem.startswith("Expecting ',' delimiter"):
        return _unfinished_number(text, at) or _no_comma(text, at)
    if problem.startswith("Illegal trailing comma"):
        at = skip_space(text, at + 1)
        return ("Invalid value.", at) if text[at] == "]" else (_NO_NAME, at)
    if problem.startswith("Unterminated string"):
        return _open_string(text)
    if problem.startswith("Invalid \\uXXXX"):
        return "Incorrect hex digit after \\u escape in string.", at - 1
    known = (reason for start, reason in _REASONS if problem.startswith(start))
    return next(known, "Invalid value."), at


def _no_value(text: str, at: int) -> tuple[str, int]:
    if not text.strip(" \t\r\n"):
        return "The document is empty.", len(text)
    return "Invalid value.", at + max(_common(text, at, literal) for literal in _LITERALS)


def _common(text: str, at: int, literal: str) -> int:
    """The number of characters from `at` on that match `literal`."""
    pairs = enumerate(zip(text[at : at + len(literal)], literal, strict=False))
    differ = (n for n, (one, other) in pairs if one != other)
    return next(differ, min(len(text) - at, len(literal)))


def _unfinished_number(text: str, at: int) -> tuple[str, int] | None:
    if not text[at - 1 : at].isdigit():  # what is there follows a list, an object or a string
        return None
    if text[at : at + 1] == ".":
        return "Miss fraction part in number.", at + 1
    if text[at : at + 1] in ("e", "E"):
        return "Miss exponent in number.", at + 1 + (text[at + 1 : at + 2] in ("+", "-"))
    return None


def _no_comma(text: str, at: int) -> tuple[str, int]:
    inside: list[str] = []
    for token in _TOKEN.finditer(text, 0, at):
        if token[0] in ("[", "{"):
            inside.append(token[0])
        elif token[0] in ("]", "}"):
            inside.pop()
    if inside[-1] == "[":
        return "Missing a comma or ']' after an array element.", at
    return "Missing a comma or '}' after an object member.", at


def _open_string(text: str) -> tuple[str, int]:
    slashes = len(text) - len(text.rstrip("\\"))
    if slashes % 2:
        return _BAD_ESCAPE, len(text) - 1
    return "Missing a closing quotation mark in string.", len(text)
