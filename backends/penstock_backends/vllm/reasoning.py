"""Reasoning split from the answer, by the parser that `model.json` names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock_backends.language_model import Candidate


class ReasoningReader:
    """Splits the text of one candidate into reasoning and answer with a parser of vLLM's.

    In a stream piece by piece; of an answer in one piece, when all of it is there. The parser wants
    to see the whole text with every token, which is copied for it; token ids are not.
    """

    def __init__(self, parser: Any, candidate: Candidate, *, stream: bool) -> None:
        self._parser = parser
        self._candidate = candidate
        self._stream = stream
        self._text = ""
        self._ids, self._ids_before = _Ids(), _Ids()

    def add(self, completion: Any) -> None:
        """Add one `CompletionOutput`."""
        candidate, ids = self._candidate, list(completion.token_ids)
        candidate.add("" if self._stream else completion.text, len(ids))
        if self._stream and (ids or completion.text):
            self._split(completion.text, ids)
        if completion.finish_reason is not None and not self._stream:
            reasoning, answer = self._parser.extract_reasoning("".join(candidate.text), _request())
            candidate.text = [answer] if answer else []
            candidate.reasoning = [reasoning] if reasoning else []

    def _split(self, text: str, ids: list[int]) -> None:
        before = self._text
        self._text = before + text
        self._ids.extend(ids)
        delta = self._parser.extract_reasoning_streaming(
            before, self._text, text, self._ids_before, self._ids, ids
        )
        self._ids_before.extend(ids)
        if delta is not None and delta.reasoning:
            self._candidate.reasoning.append(delta.reasoning)
        if delta is not None and delta.content:
            self._candidate.text.append(delta.content)


class _Ids(list[int]):
    """Token ids, among which parsers look for those of their marks, with every token."""

    def __init__(self) -> None:
        super().__init__()
        self._known: set[int] = set()

    def extend(self, ids: Iterable[int]) -> None:
        new = list(ids)
        super().extend(new)
        self._known.update(new)

    def __contains__(self, one: object) -> bool:
        return one in self._known


def parser_class(name: str) -> Any:
    """The class of vLLM's parser of this name; `None` without a name."""
    if not name:
        return None
    from vllm.reasoning import ReasoningParserManager

    return ReasoningParserManager.get_reasoning_parser(name)


def _request() -> Any:
    """A request as parsers want to see one; the prompts here are plain text."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    return ChatCompletionRequest(messages=[], model="")
