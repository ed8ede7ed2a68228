"""`RelayedTokens`: tokens of an answer of OpenAI's API that is handed on, as it tells them."""

from __future__ import annotations

import json
from typing import Any, Final, TypeGuard

import orjson

from penstock.backend import ReportUsage
from penstock_backends.language_model import UsageReporter
from penstock_backends.remote.openai_answers import LONGEST_EVENT

_USAGE: Final = b'"usage"'
_ASKED: Final = ("/chat/completions", "/completions")
"""Ends of the paths whose streams take `stream_options`."""
_STARTS: Final = "message_start"
_END: Final = 4096
"""Bytes at the end of a long answer among which its usage is looked for."""
_TEXTS: Final = ("text", "content", "reasoning_content", "reasoning", "tool_calls")


class RelayedTokens:
    """Reads an answer while it passes. Each event with some text is a token until the end tells.

    Chat and completions tell at the end of a stream if they are asked in `body`; a client that has
    not asked for that event does not get it.
    """

    def __init__(self, report: ReportUsage) -> None:
        self._reporter = UsageReporter(report)
        self._hides = self._streams = self._hidden = False
        self._rest = b""
        self._whole = bytearray()
        self._last = b""

    def body(self, given: dict[str, Any], path: str) -> None:
        """Have a stream's end tell its tokens, on paths that have an option for it."""
        options = given.get("stream_options")
        asks = given.get("stream") is True and path.endswith(_ASKED)
        if asks and (options is None or isinstance(options, dict)):
            self._hides = not (options or {}).get("include_usage")
            given["stream_options"] = {**(options or {}), "include_usage": True}

    def begin(self, kind: bytes) -> None:
        """Note the content type of the answer."""
        self._streams = kind.startswith(b"text/event-stream")
        self._rest = self._last = b""
        self._whole.clear()

    def feed(self, data: bytes) -> bytes:
        """Add a piece of the answer; returns what the client gets now."""
        if not self._streams:
            if len(self._whole) <= LONGEST_EVENT:
                self._whole += data
            self._last = (self._last + data[-_END:])[-_END:]
            return data
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        passed = [line + b"\n" for line in lines if self._takes(line)]
        if len(self._rest) > LONGEST_EVENT:  # no event that anybody reads
            passed.append(self._rest)
            self._rest = b""
        return b"".join(passed)

    def end(self) -> bytes:
        """The rest that the client gets, at the end of the answer."""
        if self._streams:
            rest, self._rest = self._rest, b""
            return rest
        if len(self._whole) <= LONGEST_EVENT:
            self._count(_object(self._whole).get("usage") if _USAGE in self._whole else None)
        else:
            self._count(_last_usage(self._last))
        return b""

    def cut_off(self) -> None:
        """Report what has come, where the client leaves before the end."""
        self._reporter.cut_off()

    def _takes(self, line: bytes) -> bool:
        """Count the tokens of an event; whether the client gets this line."""
        if self._hidden and not line.strip():  # that behind it
            self._hidden = False
            return False
        if not line.startswith(b"data:"):
            return True
        given = _object(line[5:])
        choices = given.get("choices")
        told = given.get("usage") or _inside(given, "response") or _inside(given, "message")
        if given.get("type") == _STARTS:  # of the prompt: what it has made is told at the end
            self._count(told, ends=False)
        elif self._count(told):
            self._hidden = self._hides and choices == []
            return not self._hidden
        elif (isinstance(choices, list) and any(map(_has_text, choices))) or given.get("delta"):
            self._reporter.add(1, finished=False)
        return True

    def _count(self, usage: Any, *, ends: bool = True) -> bool:
        """Report what the remote has counted; whether it has."""
        if not isinstance(usage, dict):
            return False
        reporter, details = self._reporter, usage.get("prompt_tokens_details")
        prompt = usage.get("prompt_tokens", usage.get("input_tokens", reporter.prompt))
        made = usage.get("completion_tokens", usage.get("output_tokens", 0))
        if not _is_count(prompt) or not _is_count(made):
            return False
        reporter.prompt = prompt
        if isinstance(details, dict) and _is_count(cached := details.get("cached_tokens")):
            reporter.cached = min(cached, prompt)
        if ends:
            reporter.add(max(made - reporter.tokens, 0), finished=True)  # it has sent so many
        return True


def _is_count(given: Any) -> TypeGuard[int]:
    return isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 1 << 31


def _inside(event: dict[str, Any], name: str) -> Any:
    """The usage in a member of an event, as responses and messages have it."""
    member = event.get(name)
    return member.get("usage") if isinstance(member, dict) else None


def _last_usage(end: bytes) -> Any:
    """The usage at the end of an answer that is too long to be read."""
    at = end.rfind(_USAGE)
    text = end[at + len(_USAGE) :].decode("utf-8", "replace").lstrip(" \r\n:")
    try:
        return None if at < 0 else json.JSONDecoder().raw_decode(text)[0]
    except ValueError:
        return None


def _object(data: bytes | bytearray) -> dict[str, Any]:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _has_text(choice: Any) -> bool:
    part = choice.get("delta", choice) if isinstance(choice, dict) else None
    return isinstance(part, dict) and any(part.get(name) for name in _TEXTS)
