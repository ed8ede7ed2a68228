"""A scripted model behind the interface of a real one, and clients of its application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx2
import openai

from penstock.core.errors import InferenceError
from penstock.core.http_exchange import AsgiApp
from penstock_backends.language_model import PromptTokens
from penstock_backends.openai_kit.application import language_model_app
from penstock_backends.openai_kit.asgi import OpenAiApplication
from penstock_backends.openai_kit.generator import (
    Generation,
    ModelFacts,
    Piece,
    Step,
    TokenProbability,
)
from penstock_backends.openai_kit.settings import OpenAiSettings
from penstock_backends.openai_kit.token_prompts import TokenPrompts

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
HELLO: Any = [{"role": "user", "content": "hello"}]


@dataclass
class Script:
    """What a model says: pieces of text, one step each, then the end or an error."""

    texts: Sequence[str] = ("Hello", " you")
    reason: str = "stop"
    error: InferenceError | None = None
    refusal: InferenceError | None = None
    endless: bool = False


class ScriptedSteps:
    """The steps of a script, each for all `n` answers."""

    def __init__(self, script: Script, generation: Generation) -> None:
        self._script = script
        self._count = generation.parameters.get("n", 1)
        self._logprobs = "logprobs" in generation.parameters
        self._left = [*script.texts] if not generation.whole else ["".join(script.texts)]
        self._ended = False
        self.closed = False

    def __aiter__(self) -> ScriptedSteps:
        return self

    async def begin(self) -> None:
        pass

    async def __anext__(self) -> Step:
        if self._left:
            return self._step(self._left.pop(0))
        if self._script.endless:
            await asyncio.Event().wait()
        if self._ended:
            raise StopAsyncIteration
        self._ended = True
        if self._script.error is not None:
            raise self._script.error
        return Step([Piece(i, finish_reason=self._script.reason) for i in range(self._count)])

    async def aclose(self) -> None:
        self.closed = True

    def _step(self, text: str) -> Step:
        position = [TokenProbability(text, -0.5)]
        logprobs = [position] if self._logprobs else None
        return Step([Piece(i, text, 1, [7], logprobs) for i in range(self._count)], 2)


class Characters:
    """A tokenizer whose tokens are characters."""

    def encode(self, text: str, *, add_special_tokens: bool) -> SimpleNamespace:
        return SimpleNamespace(ids=[ord(character) for character in text])

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        return "".join(map(chr, tokens))

    def id_to_token(self, token: int) -> str:
        return chr(token)


@dataclass
class ScriptedModel:
    """A model whose tokens are characters."""

    script: Script = field(default_factory=Script)
    facts: ModelFacts = field(
        default_factory=lambda: ModelFacts("m", 200, 1 << 20, 1, TEMPLATE, {"eos_token": "</s>"})
    )
    asked: list[Generation] = field(default_factory=list)
    steps: list[ScriptedSteps] = field(default_factory=list)

    def __post_init__(self) -> None:
        characters = Characters()
        tokens = PromptTokens(characters, asyncio.to_thread, self.facts.vocabulary)
        self.prompts = TokenPrompts(characters, tokens, self.facts)

    def generate(self, generation: Generation) -> ScriptedSteps:
        if self.script.refusal is not None:
            raise self.script.refusal
        self.asked.append(generation)
        self.steps.append(ScriptedSteps(self.script, generation))
        return self.steps[-1]

    @property
    def prompt(self) -> str:
        """The last prompt, as text."""
        return self.asked[-1].prompt.text

    def app(self, **settings: Any) -> OpenAiApplication:
        """Its application."""
        return language_model_app(self, OpenAiSettings(**settings))

    def client(self, **settings: Any) -> openai.AsyncOpenAI:
        """The official client of its application."""
        return client_of(self.app(**settings))


def http_of(app: AsgiApp) -> httpx2.AsyncClient:
    """A plain HTTP client of an application."""
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://model")


def client_of(app: AsgiApp) -> openai.AsyncOpenAI:
    """The official client of an application."""
    return openai.AsyncOpenAI(
        base_url="http://model/v1", api_key="none", http_client=http_of(app), max_retries=0
    )


def events_of(body: str) -> list[Any]:
    """The data of server-sent events; the end as text."""
    blocks = [block for block in body.split("\n\n") if block]
    data = [block.split("data: ", 1)[1] for block in blocks]
    return [text if text == "[DONE]" else json.loads(text) for text in data]


async def post(app: OpenAiApplication, path: str, body: Any) -> httpx2.Response:
    """A request with this body, as JSON unless it is bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with http_of(app) as http:
        return await http.post(path, content=content)
