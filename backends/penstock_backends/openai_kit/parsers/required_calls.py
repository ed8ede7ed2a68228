"""Incremental reader of the JSON array that a required tool call is generated as."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

_HEAD: Final = re.compile(
    r'[\s,\[\]}]*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"parameters"\s*:\s*', re.DOTALL
)
_BETWEEN: Final = " \t\r\n,]}"
"""Characters between and behind calls."""
_SCANNED: Final = re.compile(r'["\\{}\[\]]')

CallText = tuple[int, str | None, str]
"""The index of a call; its name, where it begins; and new text of its arguments."""


class RequiredCalls:
    """Reads `[{"name": "f", "parameters": {...}}, ...]` as it is generated.

    The grammar has this form, whatever the white space; arguments pass as they come.
    """

    def __init__(self) -> None:
        self._held = ""
        self._count = 0
        self._depth = 0
        self._in_text = self._escaped = self._inside = False

    def feed(self, text: str) -> Iterator[CallText]:
        """Take new text; yields the new parts of each call."""
        self._held += text
        while self._held:
            if self._inside:
                yield from self._arguments()
                if self._inside:
                    return
            head = _HEAD.match(self._held)
            if head is None or head.end() == len(self._held):
                return  # white space may follow, and only what comes next ends it
            yield self._begin(head)

    def flush(self) -> tuple[Sequence[CallText], str]:
        """Text kept back when an answer is cut off: a call's beginning, and text of none."""
        head = None if self._inside else _HEAD.match(self._held)
        begun = [self._begin(head)] if head is not None else []
        held, self._held = self._held.lstrip(_BETWEEN), ""
        return begun, held if held.strip("[{") else ""

    def _begin(self, head: re.Match[str]) -> CallText:
        self._held = self._held[head.end() :]
        self._inside = True
        self._count += 1
        return self._count - 1, json.loads(head[1]), ""

    def _arguments(self) -> Iterator[CallText]:
        end = self._scan()
        text, self._held = self._held[:end], self._held[end:]
        if text:
            yield self._count - 1, None, text

    def _scan(self) -> int:
        """The end of the arguments within the held text, or of the text."""
        at = 0
        while at < len(self._held):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = _SCANNED.search(self._held, at)
            if found is None:
                return len(self._held)
            at = found.end()
            self._note(found[0])
            if not self._depth and not self._in_text:
                self._inside = False
                return at
        return at

    def _note(self, character: str) -> None:
        if self._in_text:
            self._escaped = character == "\\"
            self._in_text = character != '"'
        elif character == '"':
            self._in_text = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
