"""Text of streamed answers that vLLM's parsers of tool calls hold back, and never send.

A parser holds back what may be a call. Where it is not one, a whole answer has it as
content, and a stream would lose it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock_backends.vllm.internals import content_delta


def keeping_text(parser_class: Any, enable_auto_tools: bool) -> Any:
    """A parser of the same kind whose streams without calls have the content of a whole answer."""

    class KeepingText(parser_class):  # type: ignore[misc, unused-ignore]
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self._streamed = _Streamed(partial(parser_class, *given, **named), enable_auto_tools)

        def parse_delta(
            self,
            delta_text: str,
            delta_token_ids: list[int],
            request: Any,
            prompt_token_ids: list[int] | None = None,
            *,
            finished: bool,
        ) -> Any:
            delta = super().parse_delta(
                delta_text, delta_token_ids, request, prompt_token_ids, finished=finished
            )
            self._streamed.add(delta_text, delta_token_ids, delta)
            rest = self._streamed.rest(request) if finished else ""
            return _with_content(delta, rest) if rest else delta

    return KeepingText


class _Streamed:
    """The text of a model in one stream, and the content of it that was sent."""

    def __init__(self, parser: Callable[[], Any], enable_auto_tools: bool) -> None:
        self._parser = parser
        self._enable_auto_tools = enable_auto_tools
        self._text: list[str] = []
        self._ids: list[int] = []
        self._content: list[str] = []
        self._called = False

    def add(self, text: str, token_ids: list[int], delta: Any) -> None:
        """Note a step of the model, and what is sent of it."""
        self._text.append(text)
        self._ids += token_ids
        if delta is not None:
            self._content.append(delta.content or "")
            self._called = self._called or bool(delta.tool_calls)

    def rest(self, request: Any) -> str:
        """The content of the whole answer that was not sent; none where there are calls."""
        if self._called:
            return ""
        _, content, calls = self._parser().parse(
            "".join(self._text),
            request,
            enable_auto_tools=self._enable_auto_tools,
            model_output_token_ids=self._ids,
        )
        sent = "".join(self._content)
        whole = content or ""
        return "" if calls or not whole.startswith(sent) else whole[len(sent) :]


def _with_content(delta: Any, rest: str) -> Any:
    """The last delta of a stream, with more content."""
    if delta is None:
        return content_delta(rest)
    delta.content = (delta.content or "") + rest
    return delta
