"""`TokenPrompts`: the prompts of a model that takes tokens, as engines do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.backend import InvalidRequestError
from penstock_backends.language_model import PromptTokens
from penstock_backends.openai_kit.errors import ApiError, refuse_field
from penstock_backends.openai_kit.generator import ModelFacts, Prompt
from penstock_backends.openai_kit.sampling import asked_length


class TokenPrompts:
    """Makes tokens of prompts, which share the model's context with those of the answer.

    `tokenizer` is one of the package `tokenizers`, the model's own, as is that of `tokens`.
    """

    completion_length: int | None = 16  # OpenAI's own

    def __init__(self, tokenizer: Any, tokens: PromptTokens, facts: ModelFacts) -> None:
        self.text_tokenizer = tokenizer
        self.context_length: int | None = facts.context_length
        self.limit_text = f"the {facts.context_length} tokens of the model's context"
        self._tokens = tokens
        self._facts = facts

    def check(self, fields: Mapping[str, Any]) -> None:
        """All fields of a prompt can be kept."""

    async def of_text(self, text: str, *, special: bool) -> Prompt:
        try:
            tokens = await self._tokens.encode_async(text, special=special)
        except InvalidRequestError as error:
            raise ApiError(error.message, code="context_length_exceeded") from error
        return Prompt(text, tokens)

    def of_tokens(self, given: list[int], field: str, *, with_text: bool) -> Prompt:
        check_tokens(given, self._facts, field)
        text = self.text_tokenizer.decode(given, skip_special_tokens=True) if with_text else ""
        return Prompt(text, given)

    def answer_length(
        self, fields: Mapping[str, Any], prompt: Prompt, default: int | None, field: str
    ) -> dict[str, int]:
        """As asked, else the default, at most what the context leaves."""
        size, most = len(prompt.tokens), self._facts.context_length
        if not size:
            refuse_field(field, "the prompt is empty")
        if size >= most:
            refuse_field(
                field,
                f"the prompt has {size} tokens, but the model's context length is {most} tokens, "
                "and at least one must be left to generate",
                "context_length_exceeded",
            )
        length = asked_length(fields, most, ", the model's context length") or default
        return {"max_tokens": min(most - size, length or most)}


def check_tokens(tokens: Any, facts: ModelFacts, field: str) -> None:
    """Refuse what is not a list of token ids, or has ids that the model does not have.

    pydantic takes `1.0`, `"1"` and `true` for numbers, too.
    """
    most = facts.vocabulary
    ids = isinstance(tokens, list) and tokens and all(type(one) is int for one in tokens)
    if not ids or not 0 <= min(tokens) <= max(tokens) < most:
        refuse_field(field, f"'{field}' must hold token ids from 0 to {most - 1}")
