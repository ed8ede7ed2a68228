"""Incremental parsers of reasoning: they part what a model thinks from what it says.

Those that come with OpenVINO GenAI swallow a text that never opens its tag, so they cannot be
used here: nothing of an answer may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple


class Parted(NamedTuple):
    """New text, parted."""

    reasoning: str = ""
    content: str = ""


class TaggedReasoning:
    """Reasoning between two tags at the beginning of a text.

    With `begun` the prompt has opened it already; then the text may repeat the opening tag. White
    space before the opening tag and after the closing one is dropped, where there is reasoning.
    The result does not depend on how the text is cut.
    """

    def __init__(self, opening: str, closing: str, *, begun: bool) -> None:
        self._opening, self._closing = opening, closing
        self._begun = begun
        self._held = ""
        self._step: Callable[[], Parted] = self._before

    def feed(self, text: str) -> Parted:
        """Take new text; returns the part of it that is certain now."""
        self._held += text
        reasoning, content = "", ""
        while self._held:
            before = self._held, self._step
            parted = self._step()
            reasoning, content = reasoning + parted.reasoning, content + parted.content
            if (self._held, self._step) == before:
                break
        return Parted(reasoning, content)

    def flush(self) -> Parted:
        """The text that was held back, at its end."""
        held, self._held = self._held, ""
        inside = self._step == self._inside or (self._begun and self._step == self._before)
        return Parted(reasoning=held) if inside else Parted(content=held)

    def _before(self) -> Parted:
        start = self._held.lstrip()
        if start.startswith(self._opening):
            self._held = start[len(self._opening) :]
            self._step = self._inside
        elif not self._opening.startswith(start):
            self._step = self._inside if self._begun else self._after
        return Parted()

    def _inside(self) -> Parted:
        text, closed, rest = self._held.partition(self._closing)
        if closed:
            self._held, self._step = rest, self._between
            return Parted(reasoning=text)
        keep = partial_end(text, self._closing)
        self._held = text[len(text) - keep :]
        return Parted(reasoning=text[: len(text) - keep])

    def _between(self) -> Parted:
        self._held = self._held.lstrip()
        if self._held:
            self._step = self._after
        return Parted()

    def _after(self) -> Parted:
        content, self._held = self._held, ""
        return Parted(content=content)


def partial_end(text: str, tag: str) -> int:
    """The length of the longest end of `text` that is a beginning of `tag`, and not all of it."""
    lengths = range(min(len(tag) - 1, len(text)), 0, -1)
    return next((length for length in lengths if tag.startswith(text[-length:])), 0)


REASONING_PARSERS: Final[Mapping[str, Callable[[], TaggedReasoning]]] = {
    "deepseek_r1": lambda: TaggedReasoning("<think>", "</think>", begun=True),
    "phi4": lambda: TaggedReasoning("<think>", "</think>", begun=False),
    "qwen3": lambda: TaggedReasoning("<think>", "</think>", begun=False),
}
"""Makers of parsers by name; names are vLLM's where it has one."""
