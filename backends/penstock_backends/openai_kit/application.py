"""The applications: routes of a language model, and of an encoder."""

from __future__ import annotations

from typing import Final

from penstock_backends.openai_kit.asgi import OpenAiApplication, Route
from penstock_backends.openai_kit.chat import ChatEndpoint
from penstock_backends.openai_kit.completions import CompletionEndpoint
from penstock_backends.openai_kit.generator import Generator
from penstock_backends.openai_kit.responses_api.endpoint import ResponsesEndpoint
from penstock_backends.openai_kit.settings import OpenAiSettings
from penstock_backends.openai_kit.tokens import DetokenizeEndpoint, TokenizeEndpoint

_LONGEST_BODY: Final = 16 << 20
_LONGEST_ESCAPE: Final = 6
"""Bytes of a character in JSON, at most, with few exceptions."""
_SMALL_BODY: Final = 1 << 20


def language_model_app(generator: Generator, settings: OpenAiSettings) -> OpenAiApplication:
    """The application of a language model. Bodies may be as long as its context is at most."""
    facts = generator.facts
    longest = _SMALL_BODY + facts.context_length * facts.longest_token * _LONGEST_ESCAPE
    chats = ChatEndpoint(generator, settings)
    completions = CompletionEndpoint(generator, settings)
    responses = ResponsesEndpoint(generator, settings)
    tokens, texts = TokenizeEndpoint(generator, settings), DetokenizeEndpoint(generator, settings)
    routes = {
        "/v1/chat/completions": Route(chats, (chats.reader,)),
        "/v1/completions": Route(completions, (completions.reader,)),
        "/v1/responses": Route(responses, (responses.reader,)),
    }
    if generator.prompts.text_tokenizer is not None:
        routes["/v1/responses/input_tokens"] = Route(responses.input_tokens, (responses.reader,))
        routes["/tokenize"] = Route(tokens, tokens.readers)
        routes["/detokenize"] = Route(texts, (texts.reader,))
    return OpenAiApplication("LanguageModel", routes, min(longest, _LONGEST_BODY))
