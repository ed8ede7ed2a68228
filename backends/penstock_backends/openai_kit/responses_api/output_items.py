"""Output items of a response, and the events by which they grow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

from penstock_backends.openai_kit.parsers.answer_parts import AnswerDelta, CallDelta

Event = dict[str, Any]


class OutputItems:
    """Builds the items of one answer; every change is an event, numbered from 0.

    `done` are the items that are complete.
    """

    def __init__(self) -> None:
        self.done: list[dict[str, Any]] = []
        self._open: _Item | None = None
        self._number = 0

    def event(self, kind: str, **fields: Any) -> Event:
        """The next event."""
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}

    def add(self, delta: AnswerDelta, logprobs: Sequence[Any] = ()) -> Iterator[Event]:
        """The events of new text; `logprobs` are those of content."""
        if delta.reasoning:
            yield from self._grow(_Reasoning, delta.reasoning)
        if delta.content:
            yield from self._grow(_Message, delta.content, logprobs)
        for call in delta.calls:
            if call.id is not None:
                yield from self.close()
                yield from self._begin(_Call(call))
            if call.arguments and self._open is not None:
                yield from self._of_open(self._open.grow(call.arguments, ()))

    def close(self, status: str = "completed") -> Iterator[Event]:
        """The events that end the item which is open, if one is."""
        if self._open is None:
            return
        item, self._open = self._open, None
        for event in item.ending():
            yield self._numbered(event, item)
        whole = item.whole(status)
        yield self.event("response.output_item.done", output_index=len(self.done), item=whole)
        self.done.append(whole)

    def _grow(
        self, kind: type[_Message] | type[_Reasoning], text: str, logprobs: Sequence[Any] = ()
    ) -> Iterator[Event]:
        if not isinstance(self._open, kind):
            yield from self.close()
            yield from self._begin(kind())
        if self._open is not None:
            yield from self._of_open(self._open.grow(text, logprobs))

    def _begin(self, item: _Item) -> Iterator[Event]:
        self._open = item
        started = item.whole("in_progress")
        yield self.event("response.output_item.added", output_index=len(self.done), item=started)
        for event in item.beginning():
            yield self._numbered(event, item)

    def _of_open(self, event: Event) -> Iterator[Event]:
        if self._open is not None:
            yield self._numbered(event, self._open)

    def _numbered(self, event: Event, item: _Item) -> Event:
        return self.event(**event, item_id=item.id, output_index=len(self.done))


class _Item:
    """An output item that grows."""

    def __init__(self, prefix: str) -> None:
        self.id = f"{prefix}_{uuid4().hex}"
        self.text = ""

    def beginning(self) -> Sequence[Event]:
        """Events after it was added."""
        return ()

    def grow(self, text: str, logprobs: Sequence[Any]) -> Event:
        """The event of new text."""
        raise NotImplementedError

    def ending(self) -> Sequence[Event]:
        """Events before it is done."""
        raise NotImplementedError

    def whole(self, status: str) -> dict[str, Any]:
        """The item as it is now."""
        raise NotImplementedError


class _Message(_Item):
    """Content."""

    def __init__(self) -> None:
        super().__init__("msg")
        self._logprobs: list[Any] = []

    def beginning(self) -> Sequence[Event]:
        return [{"kind": "response.content_part.added", "content_index": 0, "part": self._part()}]

    def grow(self, text: str, logprobs: Sequence[Any]) -> Event:
        self.text += text
        self._logprobs.extend(logprobs)
        return {
            "kind": "response.output_text.delta",
            "content_index": 0,
            "delta": text,
            "logprobs": list(logprobs),
        }

    def ending(self) -> Sequence[Event]:
        done = {"text": self.text, "logprobs": self._logprobs}
        return [
            {"kind": "response.output_text.done", "content_index": 0, **done},
            {"kind": "response.content_part.done", "content_index": 0, "part": self._part()},
        ]

    def whole(self, status: str) -> dict[str, Any]:
        return {
            "type": "message",
            "id": self.id,
            "role": "assistant",
            "status": status,
            "content": [] if status == "in_progress" else [self._part()],
        }

    def _part(self) -> dict[str, Any]:
        part = {"type": "output_text", "text": self.text, "annotations": []}
        return {**part, "logprobs": self._logprobs} if self._logprobs else part


class _Reasoning(_Item):
    """The reasoning of a model, in full."""

    def __init__(self) -> None:
        super().__init__("rs")

    def grow(self, text: str, logprobs: Sequence[Any]) -> Event:
        self.text += text
        return {"kind": "response.reasoning_text.delta", "content_index": 0, "delta": text}

    def ending(self) -> Sequence[Event]:
        return [{"kind": "response.reasoning_text.done", "content_index": 0, "text": self.text}]

    def whole(self, status: str) -> dict[str, Any]:
        content = [{"type": "reasoning_text", "text": self.text}] if self.text else []
        return {
            "type": "reasoning",
            "id": self.id,
            "summary": [],
            "content": content,
            "status": status,
        }


class _Call(_Item):
    """A call of a function."""

    def __init__(self, call: CallDelta) -> None:
        super().__init__("fc")
        self._call_id = call.id
        self._name = call.name

    def grow(self, text: str, logprobs: Sequence[Any]) -> Event:
        self.text += text
        return {"kind": "response.function_call_arguments.delta", "delta": text}

    def ending(self) -> Sequence[Event]:
        done = {"arguments": self.text, "name": self._name}
        return [{"kind": "response.function_call_arguments.done", **done}]

    def whole(self, status: str) -> dict[str, Any]:
        return {
            "type": "function_call",
            "id": self.id,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": self.text,
            "status": status,
        }


def sse(event: Event) -> str:
    """The text of a server-sent event."""
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"
