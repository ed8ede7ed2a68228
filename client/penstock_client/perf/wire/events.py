"""Server-sent events of one answer; of each is read what is counted."""

from __future__ import annotations

import re

from penstock_client.reading.events import EventStream

_ERROR = re.compile(rb'"error"\s*:\s*(\{.*\}|"(?:[^"\\]|\\.)*")', re.DOTALL)
_MESSAGE = re.compile(rb'"message"\s*:\s*"((?:[^"\\]|\\.)*)"')
_COMPLETION_TOKENS = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,9})')
# An event of OpenAI's that brings no text: the role at the start, the reason of the end, the usage.
_CHOICES = re.compile(rb'"choices"\s*:')
_TEXT = re.compile(rb'"(?:content|text|reasoning_content|reasoning)"\s*:\s*"(?!")')
_LAST = (b"data: [DONE]", b"data:[DONE]")
_FAILED = (b'data: {"error"', b'data:{"error"', b"event: error", b"event:error")
# What most events begin with, and where they have their text.
_USUAL = (b'data: {"id":', b'data: {"model_name":')
_CONTENT, _FROM = b'"content":"', len(b'"content":"')


class Events:
    """The state of an answer from its events: the first `error`, the last count of `tokens`."""

    def __init__(self) -> None:
        self.error = ""
        self.tokens = 0
        self._stream = EventStream()

    def take(self, data: bytes) -> int:
        """How many of the events that end in what comes now are responses."""
        count = 0
        for event in self._stream.take(data):
            if _is_usual(event) or self._read(event):
                count += 1
        return count

    def _read(self, event: bytes) -> bool:
        """Whether an event is a response, and what else it says."""
        if _has_line(event, _LAST):
            return False
        if _has_line(event, _FAILED):
            self.error = self.error or error_text(event)
            return False
        self.tokens = completion_tokens(event) or self.tokens
        if _CHOICES.search(event) and not _TEXT.search(event):
            return False
        return _has_line(event, b"data:")


def _is_usual(event: bytes) -> bool:
    """Whether an event is a response and says nothing else, as far as a short look can tell."""
    if not event.startswith(_USUAL) or b'"completion_tokens"' in event or b"\n" in event:
        return False
    at = event.find(_CONTENT)
    if at < 0:
        return b'"choices"' not in event
    return event[at + _FROM : at + _FROM + 1] != b'"'


def _has_line(event: bytes, begins: bytes | tuple[bytes, ...]) -> bool:
    """Whether a line of an event begins so."""
    if event.startswith(begins):
        return True
    return b"\n" in event and any(line.startswith(begins) for line in event.split(b"\n"))


def completion_tokens(body: bytes) -> int:
    """How many tokens an answer or an event says that there were; 0 if it does not say."""
    found = _COMPLETION_TOKENS.search(body)
    return int(found[1]) if found else 0


def error_text(body: bytes) -> str:
    """The text of an error: of KServe's form or of OpenAI's, or the body as it is."""
    found = _ERROR.search(body)
    text = found[1] if found else body[:300]
    if message := _MESSAGE.search(text):
        text = message[1]
    return text.decode("utf-8", "replace").strip().strip('"') or "without a text"
