"""`TextPrompts`: the prompts of a model that takes text, whose tokens a named tokenizer counts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from penstock_backends.language_model import PromptTokens
from penstock_backends.openai_kit.errors import refuse_field
from penstock_backends.openai_kit.generator import Prompt
from penstock_backends.openai_kit.sampling import asked_length

MOST_CHARACTERS: Final = 1 << 20
"""Characters of a prompt."""

_LONGEST_ANSWER: Final = 1 << 20
_MOST_TOKENS: Final = 1 << 30
"""Tokens of a text at most; never reached, since request bodies are shorter."""
_UNSUPPORTED: Final = "unsupported_parameter"


class TextPrompts:
    """Leaves prompts as they are, and counts their tokens where there is a `tokenizer`.

    It is one of the package `tokenizers`. The model is left to itself where no length is asked for.
    """

    completion_length: int | None = None
    context_length: int | None = None
    limit_text = f"the {MOST_CHARACTERS} characters that this model is given at most"

    def __init__(self, model: str, tokenizer: Any) -> None:
        self.text_tokenizer = tokenizer
        self._model = model
        self._tokens = (
            None if tokenizer is None else PromptTokens(tokenizer, asyncio.to_thread, _MOST_TOKENS)
        )

    def check(self, fields: Mapping[str, Any]) -> None:
        """Refuse tools that may be called, and tokens that would be put before the text."""
        if fields.get("tools") and fields.get("tool_choice") != "none":
            text = f"'tools' are not supported: model '{self._model}' takes a text and gives a text"
            refuse_field("tools", text, _UNSUPPORTED)
        if "add_special_tokens" in fields:
            text = "'add_special_tokens' is not supported: this model is given the text itself"
            refuse_field("add_special_tokens", text, _UNSUPPORTED)

    async def of_text(self, text: str, *, special: bool) -> Prompt:
        if self._tokens is None:
            return Prompt(text, counted=False)
        return Prompt(text, await self._tokens.encode_async(text, special=special))

    def of_tokens(self, given: list[int], field: str, *, with_text: bool) -> Prompt:
        refuse_field(field, f"'{field}' must hold texts: this model takes no token ids")

    def answer_length(
        self, fields: Mapping[str, Any], prompt: Prompt, default: int | None, field: str
    ) -> dict[str, int]:
        """As asked, else the default, if there is one."""
        if not prompt.text:
            refuse_field(field, "the prompt is empty")
        length = asked_length(fields, _LONGEST_ANSWER) or default
        return {} if length is None else {"max_tokens": length}
