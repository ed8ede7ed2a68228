"""`ConfigText`: where in a `config.pbtxt` stands what a message is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import text_format

from penstock.models.config.stray_bytes import without_stray_bytes

_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_TENSOR = re.compile(r"ensemble tensor ([^\s:]+)")
_WORD = re.compile(r"[\w./-]*\w")
_OPEN = {"{": "}", "<": ">"}

_CALLED = {
    "data_type": ("datatype", "data type"),
    "decoupled": ("decoupled",),
    "default_model_filename": ("does not exist", "unable to find '/"),
    "dims": ("dims", "dimension", "shape "),
    "kind": ("kind_",),
    "max_batch_size": ("max-batch", "max batch size", "maximum batch size", "batch size"),
    "gpus": ("gpu id",),
    "platform": ("platform",),
    "preferred_batch_size": ("preferred size", "preferred batch size"),
    "response_cache": ("response cache",),
    "step": ("step",),
}
"""Other words for fields in messages, in lower case."""

_NAMING = ("name", "key", "model_name")
"""Fields by whose values messages name the message around them."""

_BACKEND = ("backend", "platform")

_GENERAL = ("count", "key", "kind", "name", "platform", "value")
"""Fields whose names are words of most messages: they are meant in quotes only."""

_VALUE, _WORD_VALUE = 16, 5
"""How much it says that a message has a field's value, in quotes or without."""
_PATH, _QUOTED_FIELD, _FIELD, _AROUND = 20, 10, 6, 2
"""The same of its path, of its name in quotes or without, and of the name of a field around it."""
_OWNER, _WORD_OWNER, _BACKEND_VALUE = 12, 3, 3
"""The same of the name of the tensor, or parameter, that the field belongs to, and of the name of
the backend, which stands in many messages.
"""


@dataclass(slots=True)
class Entry:
    """A field of the text, with its place; a message has entries, anything else a value.

    `naming` is the first of the entries that says what the message is called.
    """

    name: str
    line: int
    column: int
    parent: Entry | None
    value: str | None = None
    entries: list[Entry] = field(default_factory=list)
    naming: Entry | None = None

    def add(self, entry: Entry) -> None:
        """Add an entry of a message."""
        self.entries.append(entry)
        if self.naming is None and entry.name in _NAMING:
            self.naming = entry

    @property
    def path(self) -> str:
        """The names of the fields that lead to one inside another, with dots; else empty."""
        names, at = [self.name], self.parent
        while at is not None and at.parent is not None:
            names.append(at.name)
            at = at.parent
        return ".".join(reversed(names)) if len(names) > 1 else ""

    @property
    def owner(self) -> str:
        """The name of the message that this is a field of; empty for fields of the model, and for
        the field that says so.
        """
        if self.name in _NAMING or self.parent is None or self.parent.parent is None:
            return ""
        naming = self.parent.naming
        return "" if naming is None else naming.value or ""

    def below(self) -> Iterator[Entry]:
        """All entries below, in their order."""
        for entry in self.entries:
            yield entry
            yield from entry.below()


class ConfigText:
    """The fields of a text that protobuf can parse, at least up to its first mistake."""

    def __init__(self, content: bytes) -> None:
        text, _ = without_stray_bytes(content)
        self._root = Entry("", 1, 1, None)
        self._tokens = _Tokens(text)
        with suppress(text_format.ParseError, RecursionError):  # what stands before it is known
            self._message(self._root, "")

    def place_of(self, message: str) -> tuple[int, int]:
        """Line and column of the field that a message is about.

        Where it names none, those of the backend, or of the beginning.
        """
        words = _Words(message)
        backends = (entry for entry in self._root.entries if entry.name in _BACKEND)
        best, most = next(backends, self._root), 0
        for entry in self._root.below():
            score = words.score(entry)
            if score > most:
                best, most = entry, score
        return best.line, best.column

    # -- parsing ------------------------------------------------------------------------------

    def _message(self, parent: Entry, end: str) -> None:
        tokens = self._tokens
        while tokens.next not in ("", end):
            entry = Entry(tokens.next, *tokens.place, parent)
            tokens.advance()
            if tokens.next == ":":
                tokens.advance()
            self._value(entry)
            if tokens.next in (",", ";"):
                tokens.advance()
        tokens.advance()

    def _value(self, entry: Entry) -> None:
        tokens = self._tokens
        if tokens.next != "[":
            self._element(entry)
            return
        tokens.advance()
        while tokens.next not in ("", "]"):
            self._element(Entry(entry.name, *tokens.place, entry.parent))
            if tokens.next == ",":
                tokens.advance()
        tokens.advance()

    def _element(self, entry: Entry) -> None:
        tokens = self._tokens
        assert entry.parent is not None
        entry.parent.add(entry)
        if end := _OPEN.get(tokens.next):
            tokens.advance()
            self._message(entry, end)
            return
        parts = [tokens.next]
        tokens.advance()
        while tokens.next[:1] in ("'", '"'):  # strings in a row are one
            parts.append(tokens.next)
            tokens.advance()
        entry.value = "".join(part.strip("'\"") for part in parts)


class _Tokens:
    """Protobuf's own tokens, one ahead."""

    def __init__(self, text: str) -> None:
        self._tokenizer: Any = text_format.Tokenizer(text.split("\n"))

    @property
    def next(self) -> str:
        """The next token; empty at the end."""
        token: str = self._tokenizer.token
        return token

    @property
    def place(self) -> tuple[int, int]:
        """Line and column of the next token."""
        error = self._tokenizer.ParseError("")
        return error.GetLine(), error.GetColumn()

    def advance(self) -> None:
        self._tokenizer.NextToken()


class _Words:
    """The names in a message: values in quotes, words, and fields in other words."""

    def __init__(self, message: str) -> None:
        self._lower = message.lower()
        quoted = {one or other for one, other in _QUOTED.findall(message)}
        quoted.update(_TENSOR.findall(message))
        self._quoted = quoted | {each.rpartition("/")[2] for each in quoted}
        words = _WORD.findall(message)
        self._words = {*words, *(word.rpartition("/")[2] for word in words)}
        self._fields = {part for word in words for part in word.split(".")}

    def score(self, entry: Entry) -> int:
        """How well an entry fits; the model's own name stands in most messages."""
        if entry.parent is None or (entry.parent.parent is None and entry.name == "name"):
            return _VALUE + _FIELD if "directory name" in self._lower else 0
        score = self._of_name(entry) + self._of_value(entry)
        return score and score + self._of_owners(entry)

    def _of_name(self, entry: Entry) -> int:
        if entry.path in self._words:
            return _PATH
        if entry.name in self._quoted:
            return _QUOTED_FIELD
        return _FIELD if self._names(entry.name) else 0

    def _of_value(self, entry: Entry) -> int:
        value = entry.value or ""
        if entry.name in _BACKEND:
            return _BACKEND_VALUE if value in self._quoted else 0
        if value in self._quoted and (len(value) > 1 or entry.name in _NAMING):
            return _VALUE
        return _WORD_VALUE if value in self._words and not value.isdecimal() else 0

    def _of_owners(self, entry: Entry) -> int:
        """How well the messages around an entry fit."""
        score = 0
        if entry.owner:
            score += self._of_owner(entry.owner)
        around: Entry | None = entry.parent
        while around is not None and around.parent is not None:
            score += _AROUND if self._names(around.name) else 0
            score += self._of_owner(around.owner) // 2
            around = around.parent
        return score

    def _of_owner(self, name: str) -> int:
        if name in self._quoted:
            return _OWNER
        return _WORD_OWNER if name in self._words else 0

    def _names(self, name: str) -> bool:
        if name in _GENERAL:
            return name in self._quoted
        if name in self._fields or ("_" in name and name.replace("_", " ") in self._lower):
            return True
        called: Sequence[str] = _CALLED.get(name, ())
        return any(other in self._lower for other in called)
