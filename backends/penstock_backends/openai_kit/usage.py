"""Usage of a request: tokens of prompt and answers, in OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock_backends.openai_kit.generator import Generation, Step


class Usage:
    """Counts the tokens of one request; `counted` says whether somebody knows them."""

    def __init__(self, prompt: int, *, counted: bool = True) -> None:
        self.prompt = prompt
        self.counted = counted
        self.cached = 0
        self.generated = 0

    @classmethod
    def of(cls, generation: Generation) -> Usage:
        """That of a prompt."""
        return cls(len(generation.prompt.tokens), counted=generation.prompt.counted)

    def add(self, step: Step) -> None:
        """Count a step."""
        if step.prompt_tokens is not None:
            self.prompt = step.prompt_tokens
            self.counted = True
        self.cached = max(self.cached, step.cached_tokens)
        self.generated += sum(piece.tokens for piece in step.pieces)

    def member(self) -> dict[str, Any]:
        """The member `usage` of an answer; none where nobody knows the tokens."""
        return {"usage": self.plain()} if self.counted else {}

    def plain(self) -> dict[str, Any]:
        """The object `usage` of an answer; it has cached tokens also where there are none."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


def total(usages: Iterable[Usage]) -> Usage:
    """The usage of several prompts together."""
    together = Usage(0)
    for usage in usages:
        together.counted = together.counted and usage.counted
        together.prompt += usage.prompt
        together.cached += usage.cached
        together.generated += usage.generated
    return together


class UsageReports:
    """Which events of a stream carry usage, by `stream_options`."""

    def __init__(self, options: Mapping[str, Any] | None) -> None:
        options = options or {}
        self.at_end = bool(options.get("include_usage"))
        self._always = self.at_end and bool(options.get("continuous_usage_stats"))

    def tail(self, usages: Iterable[Usage]) -> str:
        """The end of a chunk's JSON, for a request with these prompts."""
        if self._always and (together := total(usages)).counted:
            return f',"usage":{json.dumps(together.plain())}}}\n\n'
        return ',"usage":null}\n\n' if self.at_end else "}\n\n"
