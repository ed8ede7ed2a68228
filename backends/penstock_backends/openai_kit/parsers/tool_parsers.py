"""Incremental parsers of tool calls that a model writes by itself, by the format it was taught.

A text that may hold a call is kept back until the call is complete, so the result does not
depend on how the text is cut. What cannot be parsed comes through as content.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from penstock_backends.openai_kit.parsers.reasoning import partial_end

_MISTRAL: Final = "[TOOL_CALLS]"
_LONGEST_CALL: Final = 1 << 17
"""Characters of calls that are kept back at most; then they are content."""


class ToolCall(NamedTuple):
    """A call: the function's name and its arguments as JSON text."""

    name: str
    arguments: str


class ParsedText(NamedTuple):
    """New content, and calls that are complete."""

    content: str = ""
    calls: Sequence[ToolCall] = ()


class ToolParser(Protocol):
    """A parser of one answer."""

    def feed(self, text: str) -> ParsedText:
        """Take new text; returns the content and calls that are certain now."""

    def flush(self) -> ParsedText:
        """The parts that were kept back, at the end of the text."""


class TaggedCalls:
    """Calls as JSON objects between tags, anywhere in a text, as Hermes and Qwen models write."""

    def __init__(self, opening: str, closing: str) -> None:
        self._opening, self._closing = opening, closing
        self._held = ""
        self._inside = False

    def feed(self, text: str) -> ParsedText:
        self._held += text
        content: list[str] = []
        calls: list[ToolCall] = []
        while self._inside or self._opening in self._held:
            if not self._inside:
                before, _, self._held = self._held.partition(self._opening)
                content.append(before)
                self._inside = True
            inner, closed, rest = self._held.partition(self._closing)
            if not closed:
                return self._kept(content, calls)
            self._held, self._inside = rest, False
            found = json_call(inner) if len(inner) <= _LONGEST_CALL else None
            if found is None:
                content.append(f"{self._opening}{inner}{self._closing}")
            else:
                calls.append(found)
        keep = partial_end(self._held, self._opening)
        content.append(self._held[: len(self._held) - keep])
        self._held = self._held[len(self._held) - keep :]
        return ParsedText("".join(content), calls)

    def flush(self) -> ParsedText:
        """An unclosed call counts if it is whole JSON: models may end before the closing tag."""
        held, self._held = self._held, ""
        if not self._inside:
            return ParsedText(held)
        self._inside = False
        found = json_call(held)
        return ParsedText(self._opening + held) if found is None else ParsedText(calls=[found])

    def _kept(self, content: list[str], calls: list[ToolCall]) -> ParsedText:
        if len(self._held) >= _LONGEST_CALL + len(self._closing):
            content.append(self._opening + self._held)
            self._held, self._inside = "", False
        return ParsedText("".join(content), calls)


class WholeCalls:
    """Answers that are nothing but calls, as Llama 3 models write: `read` parses the whole text.

    A text that begins with one of `starts` is kept back to its end; any other is content at once.
    """

    def __init__(
        self, starts: Sequence[str], read: Callable[[str], Sequence[ToolCall] | None]
    ) -> None:
        self._starts = starts
        self._read = read
        self._held = ""
        self._may_call = True

    def feed(self, text: str) -> ParsedText:
        if not self._may_call:
            return ParsedText(text)
        self._held += text
        seen = self._held.lstrip()
        possible = any(seen.startswith(s) or s.startswith(seen) for s in self._starts)
        if possible and len(self._held) <= _LONGEST_CALL:
            return ParsedText()
        self._may_call = False
        held, self._held = self._held, ""
        return ParsedText(held)

    def flush(self) -> ParsedText:
        held, self._held = self._held, ""
        calls = self._read(held.strip()) if held.strip() else None
        return ParsedText(calls=calls) if calls else ParsedText(held)


def json_call(text: str) -> ToolCall | None:
    """The call that a JSON object describes; `None` for anything else.

    NaN is not JSON, and half of a surrogate pair is not text that a client could be sent.
    """
    try:
        return _call(_DECODER.decode(text))
    except (ValueError, RecursionError):
        return None


def json_calls(text: str) -> Sequence[ToolCall] | None:
    """Calls as JSON objects, with `;` or white space between them."""
    text = text.removeprefix("<|python_tag|>").strip()
    calls: list[ToolCall] = []
    at = 0
    while at < len(text):
        try:
            given, at = _DECODER.raw_decode(text, at)
            call = _call(given)
        except (ValueError, RecursionError):
            return None
        if call is None:
            return None
        calls.append(call)
        while at < len(text) and (text[at].isspace() or text[at] == ";"):
            at += 1
    return calls


def mistral_calls(text: str) -> Sequence[ToolCall] | None:
    """Calls behind `[TOOL_CALLS]`: arrays of JSON, or a name and the JSON of its arguments.

    Where a tokenizer leaves that special token out of the text, an array still is calls.
    """
    try:
        return [call for part in text.split(_MISTRAL) for call in _mistral_part(part.strip())]
    except (ValueError, RecursionError):
        return None


def _mistral_part(part: str) -> Sequence[ToolCall]:
    """The calls of one part, an array or NAME{...}; raises `ValueError` for anything else."""
    name, brace, arguments = part.partition("{")
    given: Any = []
    if part.startswith("["):
        given = _DECODER.decode(part)
    elif part:
        name = name.removesuffix("[ARGS]").strip()
        given = [{"name": name, "arguments": _DECODER.decode(brace + arguments)}]
    calls = [call for one in given if (call := _call(one))]
    if len(calls) < len(given):
        raise ValueError("not a call")
    return calls


def pythonic_calls(text: str) -> Sequence[ToolCall] | None:
    """Calls as a Python list: `[weather(city="Oslo"), time()]`, arguments literals by name."""
    try:
        parsed = ast.parse(text, mode="eval").body
        if not isinstance(parsed, ast.List):
            return None
        return [_pythonic_call(one) for one in parsed.elts]
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None  # JSON has no sets, bytes and other literals of Python


def _pythonic_call(call: ast.expr) -> ToolCall:
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError("not a call by names")
    arguments = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise ValueError("a call that unpacks")
        arguments[keyword.arg] = ast.literal_eval(keyword.value)
    text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    return _checked(ast.unparse(call.func), text)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_number)


def _checked(name: str, arguments: str) -> ToolCall:
    """A call; raises `ValueError` for half of a surrogate pair in it."""
    (name + arguments).encode()
    return ToolCall(name, arguments)


def _call(given: Any) -> ToolCall | None:
    """A call in one of the shapes that models write it in; raises `ValueError` as `_checked`."""
    if isinstance(given, dict) and isinstance(given.get("function"), dict):
        given = given["function"]
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        return None
    arguments = given.get("arguments", given.get("parameters", {}))
    if isinstance(arguments, str):
        return _checked(given["name"], arguments)
    if not isinstance(arguments, dict):
        return None
    return _checked(given["name"], json.dumps(arguments, ensure_ascii=False))


TOOL_PARSERS: Final[Mapping[str, Callable[[], ToolParser]]] = {
    "hermes": lambda: TaggedCalls("<tool_call>", "</tool_call>"),
    "llama3_json": lambda: WholeCalls(("{", "<|python_tag|>"), json_calls),
    "mistral": lambda: WholeCalls((_MISTRAL, "[{"), mistral_calls),
    "pythonic": lambda: WholeCalls(("[",), pythonic_calls),
}
"""Makers of parsers by vLLM's names."""
