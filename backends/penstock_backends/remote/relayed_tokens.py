"""`RelayedTokens`: tokens of an answer of OpenAI's API that is handed on, as it tells them."""

from __future__ import annotations

from typing import Any, Final, TypeGuard

import orjson

from penstock.backend import ReportUsage
from penstock_backends.language_model import UsageReporter
from penstock_backends.remote.openai_answers import LONGEST_EVENT

_USAGE: Final = b'"usage"'
_TEXTS: Final = ("text", "content", "reasoning_content", "reasoning", "tool_calls")


class RelayedTokens:
    """Reads an answer while it passes. Each event with some text is a token until the end tells.

    What the end of a stream tells is asked for in `body`; where the client has not asked for it,
    that event `hides`.
    """

    def __init__(self, report: ReportUsage) -> None:
        self._reporter = UsageReporter(report)
        self._hides = self._streams = self._hidden = False
        self._rest = b""

    def body(self, given: dict[str, Any]) -> None:
        """Have a stream's end tell its tokens."""
        options = given.get("stream_options")
        if given.get("stream") is True and (options is None or isinstance(options, dict)):
            self._hides = not (options or {}).get("include_usage")
            given["stream_options"] = {**(options or {}), "include_usage": True}

    def begin(self, kind: bytes) -> None:
        """Note the content type of the answer."""
        self._streams = kind.startswith(b"text/event-stream")
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Add a piece of the answer; returns what the client gets now."""
        self._rest += data
        if not self._streams:
            self._rest = self._rest[: LONGEST_EVENT + 1]
            return data
        *lines, self._rest = self._rest.split(b"\n")
        passed = [line + b"\n" for line in lines if self._takes(line)]
        if len(self._rest) > LONGEST_EVENT:  # no event that anybody reads
            passed.append(self._rest)
            self._rest = b""
        return b"".join(passed)

    def end(self) -> bytes:
        """The rest that the client gets, at the end of the answer."""
        rest, self._rest = self._rest, b""
        if not self._streams and _USAGE in rest:
            self._count(_object(rest).get("usage"))
            return b""
        return rest if self._streams else b""

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
        if self._count(given.get("usage")) and self._hides and choices == []:
            self._hidden = True
            return False
        if isinstance(choices, list) and any(map(_has_text, choices)):
            self._reporter.add(1, finished=False)
        return True

    def _count(self, usage: Any) -> bool:
        """Report what the remote has counted; whether it has."""
        if not isinstance(usage, dict):
            return False
        reporter, details = self._reporter, usage.get("prompt_tokens_details")
        prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
        made = usage.get("completion_tokens", usage.get("output_tokens", 0))
        if not _is_count(prompt) or not _is_count(made):
            return False
        reporter.prompt = prompt
        if isinstance(details, dict) and _is_count(cached := details.get("cached_tokens")):
            reporter.cached = min(cached, prompt)
        reporter.add(max(made - reporter.tokens, 0), finished=True)  # it has sent so many
        return True


def _is_count(given: Any) -> TypeGuard[int]:
    return isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 1 << 31


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _has_text(choice: Any) -> bool:
    part = choice.get("delta", choice) if isinstance(choice, dict) else None
    return isinstance(part, dict) and any(part.get(name) for name in _TEXTS)
