"""POST /tokenize and /detokenize, as vLLM has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NotRequired

from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from typing_extensions import TypedDict

from penstock_backends.openai_kit.asgi import Answer, Exchange
from penstock_backends.openai_kit.completions import check_text
from penstock_backends.openai_kit.conversation import TEMPLATE_FIELDS, Conversations
from penstock_backends.openai_kit.errors import refuse_field
from penstock_backends.openai_kit.generator import Generator, Prompt
from penstock_backends.openai_kit.json_body import BodyReader, read_object
from penstock_backends.openai_kit.messages import check_counts
from penstock_backends.openai_kit.settings import OpenAiSettings
from penstock_backends.openai_kit.token_prompts import check_tokens
from penstock_backends.openai_kit.tool_choice import ToolPlan


class _Tokenize(TypedDict):
    model: NotRequired[str]
    prompt: str
    add_special_tokens: NotRequired[bool]
    return_token_strs: NotRequired[bool]


class _Detokenize(TypedDict):
    model: NotRequired[str]
    tokens: list[int]


class TokenizeEndpoint:
    """The tokens of a text or of a chat."""

    def __init__(self, generator: Generator, settings: OpenAiSettings) -> None:
        self._generator = generator
        self._conversations = Conversations(generator, settings)
        ignore = settings.unknown_fields == "ignore"
        self._texts = BodyReader(_Tokenize, ignore_unknown=ignore)
        further = ("stream", *TEMPLATE_FIELDS, "return_token_strs")
        self._chats = BodyReader(CompletionCreateParamsBase, further, ignore_unknown=ignore)
        self.readers = (self._texts, self._chats)

    async def __call__(self, exchange: Exchange) -> Answer:
        """Answer one request."""
        given = read_object(exchange.body)
        made = (self._chat if "messages" in given else self._text)(given, exchange.parameters)
        tokens = (await made).tokens
        answer: dict[str, Any] = {
            "count": len(tokens),
            "max_model_len": self._generator.prompts.context_length,
            "tokens": list(tokens),
            "token_strs": None,
        }
        if given.get("return_token_strs"):
            tokenizer = self._generator.prompts.text_tokenizer
            answer["token_strs"] = [tokenizer.id_to_token(token) for token in tokens]
        return json.dumps(answer, ensure_ascii=False).encode()

    async def _text(self, given: dict[str, Any], parameters: Mapping[str, Any]) -> Prompt:
        fields = self._texts.check(given, parameters)
        check_text(fields["prompt"], self._generator, "prompt")
        special = fields.get("add_special_tokens", True)
        return await self._generator.prompts.of_text(fields["prompt"], special=special)

    async def _chat(self, given: dict[str, Any], parameters: Mapping[str, Any]) -> Prompt:
        check_counts(given["messages"], self._generator)
        fields = self._chats.check({"model": self._generator.facts.name, **given}, parameters)
        tools = fields.get("tools")
        return await self._conversations.prompt(
            fields, ToolPlan("auto" if tools else "none", tools)
        )


class DetokenizeEndpoint:
    """The text of tokens."""

    def __init__(self, generator: Generator, settings: OpenAiSettings) -> None:
        self._generator = generator
        self.reader = BodyReader(_Detokenize, ignore_unknown=settings.unknown_fields == "ignore")

    async def __call__(self, exchange: Exchange) -> Answer:
        """Answer one request."""
        tokens = self.reader.check(read_object(exchange.body), exchange.parameters)["tokens"]
        facts, prompts = self._generator.facts, self._generator.prompts
        if len(tokens) > facts.context_length:
            refuse_field("tokens", f"'tokens' holds {len(tokens)}, more than {prompts.limit_text}")
        if tokens:
            check_tokens(tokens, facts, "tokens")
        text = prompts.text_tokenizer.decode(tokens, skip_special_tokens=False)
        return json.dumps({"prompt": text}, ensure_ascii=False).encode()
