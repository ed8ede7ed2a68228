"""A reader of grammars in EBNF, in the notation of xgrammar.

There are literals, character classes, references, groups, `|`, `?`, `*`, `+`, `{n}`,
`{n,}`, `{n,m}` and comments. Look-ahead and macros are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock_backends.language_model import refuse
from penstock_backends.language_model.constraints import NAME
from penstock_backends.openvino_genai.grammar import (
    Choice,
    Class,
    Node,
    Reference,
    Repeat,
    Sequence,
    Text,
    refuse_grammar,
)

_LONGEST: Final = 8192
"""Characters of a grammar."""
_MOST_RULES: Final = 200
_MOST_REPEATED: Final = 100
_DEEPEST: Final = 32

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\r\n]*)|(?P<assign>::=)|(?P<name>[A-Za-z_.-][\w.-]*)"""
    r"""|(?P<text>"(?:\\.|[^"\\\r\n])*")|(?P<class>\[(?:\\.|[^\]\\\r\n])*\])"""
    r"""|(?P<count>\{[ \t]*(?P<low>[0-9]{1,9})[ \t]*"""
    r"""(?P<comma>,?)[ \t]*(?P<high>[0-9]{0,9})[ \t]*\})"""
    r"""|(?P<sign>[|?*+()])""",
    re.ASCII,
)
_CHARACTER: Final = re.compile(
    r"\\x([0-9a-fA-F]{2})(?![0-9a-fA-F])|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\([^xuU])|([^\\])",
    re.DOTALL,
)
_ESCAPES: Final = {
    **dict(zip("nrtafvbe", "\n\r\t\a\f\v\b\x1b", strict=True)),
    **{character: character for character in "\\\"'?"},
}
_CLASS_ESCAPES: Final = _ESCAPES | {character: character for character in "^$.*+()[]{}|/-"}


def read_grammar(text: str) -> dict[str, Node]:
    """The rules of a grammar by name; raises `InvalidRequestError`."""
    if len(text) > _LONGEST:
        refuse(NAME, f"has a grammar of {len(text)} characters, more than {_LONGEST}")
    return _Reader(text).rules()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    value: str
    line: int
    first: bool  # in its line
    match: re.Match[str] | None = None


class _Reader:
    """A parser by recursive descent."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def rules(self) -> dict[str, Node]:
        rules: dict[str, Node] = {}
        while self._next.kind != "end":
            name = self._take("name", "must begin a rule, as 'name ::= ...'")
            if not name.first or name.value in rules:
                why = "is defined twice" if name.first else "must begin in a line of its own"
                refuse_grammar(name.line, f"has a rule '{name.value[:80]}' which {why}")
            self._take("assign", f"must have '::=' after the name '{name.value[:80]}'")
            rules[name.value] = self._choice()
        if len(rules) > _MOST_RULES:
            refuse(NAME, f"has a grammar of {len(rules)} rules, more than {_MOST_RULES}")
        return rules

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, kind: str, otherwise: str) -> _Token:
        token = self._next
        if token.kind != kind:
            refuse_grammar(token.line, otherwise)
        self._at += 1
        return token

    def _has(self, sign: str) -> bool:
        found = self._next.kind == "sign" and self._next.value == sign
        self._at += found
        return found

    def _choice(self) -> Node:
        line = self._next.line
        parts = [self._sequence()]
        while self._has("|"):
            parts.append(self._sequence())
        return _choice(parts, line)

    def _sequence(self) -> Node:
        parts = [self._repeated()]
        while not self._ends():
            parts.append(self._repeated())
        return _sequence(parts)

    def _ends(self) -> bool:
        token = self._next
        if token.kind == "name":
            return self._tokens[self._at + 1].kind == "assign"
        return token.kind == "end" or (token.kind == "sign" and token.value in "|)")

    def _repeated(self) -> Node:
        part, token = self._element(), self._next
        if token.kind == "sign" and token.value in "?*+":
            self._at += 1
            low, high = {"?": (0, 1), "*": (0, None), "+": (1, None)}[token.value]
            return Repeat(part, low, high, token.line)
        if token.kind == "count" and token.match is not None:
            self._at += 1
            return Repeat(part, *_count(token.line, token.match), token.line)
        return part

    def _element(self) -> Node:
        token = self._next
        self._at += token.kind != "end"
        if token.kind == "text":
            codes = _codes(token, _ESCAPES)
            return _sequence([Text("".join(map(chr, codes)))] if codes else [])
        if token.kind == "class":
            return _class(token)
        if token.kind == "name":
            return Reference(token.value, token.line)
        if token.value != "(":
            refuse_grammar(token.line, "must have a literal, a class, a rule's name or a group")
        return self._group(token.line)

    def _group(self, line: int) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            refuse_grammar(line, f"nests groups more than {_DEEPEST} deep")
        inside: Node = Sequence(())
        if not self._has(")"):
            inside = self._choice()
            if not self._has(")"):
                refuse_grammar(self._next.line, f"must have ')' for the group of line {line}")
        self._depth -= 1
        return inside


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at, line, last_line = 0, 1, 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or not found.lastgroup:
            refuse_grammar(line, f"cannot be read from {text[at : at + 20]!r} on")
        kind = next(kind for kind in _KINDS if found[kind] is not None)
        if kind != "space":
            tokens.append(_Token(kind, found[0], line, line != last_line, found))
            last_line = line
        line += len(re.findall(r"\r\n|\r|\n", found[0]))
        at = found.end()
    return [*tokens, _Token("end", "", line, first=True), _Token("end", "", line, first=True)]


_KINDS: Final = ("space", "assign", "name", "text", "class", "count", "sign")


def _count(line: int, found: re.Match[str]) -> tuple[int, int | None]:
    low = int(found["low"])
    if not found["comma"] and found["high"]:
        refuse_grammar(line, f"has a count {found[0]!r} without a comma")
    high = int(found["high"]) if found["high"] else None if found["comma"] else low
    if max(low, high or 0) > _MOST_REPEATED:
        refuse_grammar(line, f"repeats more than {_MOST_REPEATED} times")
    if high is not None and (high < low or high == 0):
        refuse_grammar(line, f"has a count {found[0]!r} that is never reached")
    return low, high


def _codes(token: _Token, escapes: Mapping[str, str]) -> list[int]:
    """The characters between the first and the last of a token; a '-' of a class as -1."""
    codes, at, text = [], 1, token.value
    while at < len(text) - 1:
        found = _CHARACTER.match(text, at)
        if found is None or (found[4] and found[4] not in escapes):
            refuse_grammar(token.line, f"has an unknown escape in {token.value[:80]!r}")
        hexadecimal = found[1] or found[2] or found[3]
        code = int(hexadecimal, 16) if hexadecimal else ord(escapes.get(found[4], found[5] or ""))
        if not 0 < code < 0xD800 and not 0xDFFF < code <= 0x10FFFF:
            refuse_grammar(token.line, f"has a code that is no character in {token.value[:80]!r}")
        codes.append(-1 if found[5] == "-" and token.kind == "class" else code)
        at = found.end()
    return codes


def _class(token: _Token) -> Class:
    codes = _codes(token, _CLASS_ESCAPES)
    negated = token.value[1] == "^"
    codes = codes[negated:]
    ranges: list[tuple[int, int]] = []
    at = 0
    while at < len(codes):
        low = high = ord("-") if codes[at] < 0 else codes[at]
        at += 1
        if at + 1 < len(codes) and codes[at] < 0:
            high = ord("-") if codes[at + 1] < 0 else codes[at + 1]
            at += 2
        if low > high:
            refuse_grammar(token.line, f"has a range from high to low in {token.value[:80]!r}")
        ranges.append((low, high))
    if not ranges:
        refuse_grammar(token.line, "has an empty class")
    if negated and _all(ranges):
        refuse_grammar(token.line, "has a class that no character is in")
    return Class(tuple(ranges), negated)


def _all(ranges: list[tuple[int, int]]) -> bool:
    """Whether ranges have all characters but 0, which no grammar may name, and surrogates."""
    end = 0
    for low, high in [*sorted(ranges), (0x110000, 0x110000)]:
        if low > end + 1 and not (end >= 0xD7FF and low <= 0xE000):
            return False
        end = max(end, high)
    return True


def _sequence(parts: list[Node]) -> Node:
    """A sequence without sequences in it, whose neighbouring literals are one."""
    flat: list[Node] = []
    for part in parts:
        for one in part.parts if isinstance(part, Sequence) else [part]:
            if isinstance(one, Text) and flat and isinstance(flat[-1], Text):
                flat[-1] = Text(flat[-1].value + one.value)
            else:
                flat.append(one)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def _choice(parts: list[Node], line: int) -> Node:
    """A choice whose literals have no common beginnings: `"<" | "<="` is `"<" ("" | "=")`."""
    groups: dict[str | int, list[Node]] = {}
    for at, part in enumerate(parts):
        begin = _begin(part)
        groups.setdefault(begin[0] if begin else -1 if _is_empty(part) else at, []).append(part)
    flat = [_factored(group, line) for group in groups.values()]
    return flat[0] if len(flat) == 1 else Choice(tuple(flat), line)


def _is_empty(part: Node) -> bool:
    """Whether a part is the empty literal."""
    return isinstance(part, Sequence) and not part.parts


def _begin(part: Node) -> str:
    first = part.parts[0] if isinstance(part, Sequence) and part.parts else part
    return first.value if isinstance(first, Text) else ""


def _factored(group: list[Node], line: int) -> Node:
    if len(group) == 1 or _is_empty(group[0]):
        return group[0]
    begins = [_begin(part) for part in group]
    common = next(
        (at for at, column in enumerate(zip(*begins, strict=False)) if len(set(column)) > 1),
        min(map(len, begins)),
    )
    rests = [_without(part, common) for part in group]
    return _sequence([Text(begins[0][:common]), _choice(rests, line)])


def _without(part: Node, length: int) -> Node:
    """A part without the first characters of its literal."""
    text = _begin(part)[length:]
    rest = part.parts[1:] if isinstance(part, Sequence) else ()
    return _sequence([*([Text(text)] if text else []), *rest])
