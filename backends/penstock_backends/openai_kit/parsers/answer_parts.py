"""`AnswerParser`: parts a chat's generated text into reasoning, content and tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

from penstock_backends.openai_kit.parsers.reasoning import TaggedReasoning
from penstock_backends.openai_kit.parsers.required_calls import CallText, RequiredCalls
from penstock_backends.openai_kit.parsers.tool_parsers import ToolCall, ToolParser
from penstock_backends.openai_kit.tool_choice import ToolPlan


@dataclass(frozen=True, slots=True)
class CallDelta:
    """New text of a tool call's arguments; `id` and `name` come with its first."""

    index: int
    arguments: str
    id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """The new parts of an answer; those that are not new are empty."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing new."""
        return not (self.content or self.reasoning or self.calls)


class AnswerParser:
    """Takes the text of one answer in any pieces.

    The parts, put together, are the same however the text was cut.
    """

    def __init__(
        self, plan: ToolPlan, reasoning: TaggedReasoning | None, tools: ToolParser | None
    ) -> None:
        self._plan = plan
        self._reasoning = reasoning
        self._tools = tools if plan.way == "auto" else None
        self._required = RequiredCalls() if plan.way == "required" else None
        self.calls = 0

    def feed(self, text: str) -> AnswerDelta:
        """New parts of the answer."""
        reasoning, content = "", text
        if self._reasoning is not None:
            reasoning, content = self._reasoning.feed(text)
        return self._parted(reasoning, content)

    def flush(self) -> AnswerDelta:
        """The parts that were kept back, at the end of the text."""
        last = AnswerDelta()
        if self._reasoning is not None:
            last = self._parted(*self._reasoning.flush())
        if self._required is not None:
            begun, content = self._required.flush()
            calls = (*last.calls, *self._started(begun))
            return AnswerDelta(content, last.reasoning, calls)
        if self._tools is None:
            return last
        rest = self._tools.flush()
        calls = (*last.calls, *self._whole_calls(rest.calls))
        return AnswerDelta(last.content + rest.content, last.reasoning, calls)

    def _parted(self, reasoning: str, content: str) -> AnswerDelta:
        if self._plan.way == "named":
            return AnswerDelta("", reasoning, tuple(self._named(content)))
        if self._required is not None:
            calls = tuple(self._started(self._required.feed(content)))
            return AnswerDelta("", reasoning, calls)
        if self._tools is None:
            return AnswerDelta(content, reasoning)
        parsed = self._tools.feed(content)
        return AnswerDelta(parsed.content, reasoning, tuple(self._whole_calls(parsed.calls)))

    def _named(self, text: str) -> Iterator[CallDelta]:
        if not text:
            return
        if self.calls:
            yield CallDelta(0, text)
        else:
            self.calls = 1
            yield CallDelta(0, text, _call_id(), self._plan.name)

    def _started(self, texts: Iterable[CallText]) -> Iterator[CallDelta]:
        for index, name, arguments in texts:
            self.calls = index + 1
            yield CallDelta(index, arguments, _call_id() if name is not None else None, name)

    def _whole_calls(self, calls: Sequence[ToolCall]) -> Iterator[CallDelta]:
        for call in calls:
            if self.calls and not self._plan.parallel:
                return
            yield CallDelta(self.calls, call.arguments, _call_id(), call.name)
            self.calls += 1


def _call_id() -> str:
    return f"call_{uuid4().hex[:24]}"
