"""A backend without an engine: it answers every prompt with recorded tokens, at any rate.

What is left is what lies between an engine and a client, so that the front can be loaded to its
limit on a machine that no engine could load it from. OpenAI's API is that of models without a kit
of their own, with the tokenizer and template of the demo's model for prompts.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import ClassVar

from penstock.backend import (
    AsgiApp,
    InferenceRequest,
    InstanceContext,
    InvalidRequestError,
    Outcome,
    ResponseStream,
    WithApplication,
)
from penstock.demo.language_model import CHECKPOINT
from penstock_backends.language_model import (
    Answer,
    Delivery,
    EncodeAnswer,
    GenerationRequest,
    LanguageModelBackend,
    PromptTokens,
    read_request,
    stream_interval,
)

MARK = "~~"
"""Every recorded token begins so, and nothing else has it in it: a reader counts tokens by it."""

WORDS = tuple(
    MARK + word
    for word in (
        "a list of words is what this engine knows by heart and it says them one after the "
        "other in their order until as many were said as the request wanted then it ends"
    ).split()
)
STEP = "recorded.step_ms"
"""Parameter of the model: milliseconds of a step, in which every request gets a token. 0 makes
tokens as fast as each reader takes them."""

_TURNS = 2
"""Iterations of the event loop between two steps, as an engine's."""
_CONTEXT = 1 << 40  # tokens, so that an answer may be without end
_AGAIN = 0.002  # seconds until it is seen again who has taken what


def recorded_text(tokens: int) -> str:
    """The text of so many tokens."""
    return "".join(WORDS[number % len(WORDS)] for number in range(tokens))


class Replay:
    """One request: which token is next, and how many are left."""

    __slots__ = ("delivery", "left", "next")

    def __init__(self, delivery: Delivery, tokens: int) -> None:
        self.delivery = delivery
        self.left = tokens
        self.next = 0

    def say(self) -> bool:
        """Add a token, and push it; whether it was the last one."""
        answer = self.delivery.answer
        candidate = answer.candidates[0]
        candidate.add(WORDS[self.next % len(WORDS)])
        self.next += 1
        self.left -= 1
        if not self.left:
            candidate.finish_reason = "length"
        self.delivery.push()
        return not self.left


class RecordedBackend(WithApplication, LanguageModelBackend):
    """Plays its recording to all requests at once, a token each in every step.

    A step blocks the process as an engine's does, but sleeps.
    """

    title: ClassVar[str] = "recorded"
    on_cpu: ClassVar[bool] = True

    async def initialize(self, context: InstanceContext) -> None:
        self._step = float(context.config.parameter(STEP) or 0) / 1e3
        self._live: dict[Replay, None] = {}
        self._scheduled = False
        self._due = 0.0
        self._interval = stream_interval(context.config)
        self._context = context

    async def openai_app(self) -> AsgiApp:
        from tokenizers import Tokenizer

        from penstock_backends.openai_kit.application import language_model_app
        from penstock_backends.openai_kit.chat_template import find_special_tokens, find_template
        from penstock_backends.openai_kit.engine_generator import EngineGenerator
        from penstock_backends.openai_kit.generator import ModelFacts
        from penstock_backends.openai_kit.settings import OpenAiSettings

        tokenizer = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
        facts = ModelFacts(
            self._context.config.name,
            _CONTEXT,
            tokenizer.get_vocab_size(),
            max(map(len, tokenizer.get_vocab())),
            find_template([CHECKPOINT]),
            find_special_tokens([CHECKPOINT]),
        )
        prompts = PromptTokens(tokenizer, self._context.run, _CONTEXT)
        generator = EngineGenerator(self._start, tokenizer, prompts, facts)
        return language_model_app(generator, OpenAiSettings())

    def generate(self, request: InferenceRequest) -> Outcome:
        return self._start(request, read_request(request))

    def _start(
        self,
        _: InferenceRequest,
        generation: GenerationRequest,
        encode: EncodeAnswer | None = None,
    ) -> ResponseStream:
        tokens = (generation.parameters or {}).get("max_tokens", 0)
        if not isinstance(tokens, int) or tokens < 1:
            raise InvalidRequestError("'max_tokens' must be an integer of 1 or more")
        replays: list[Replay] = []
        answer = Answer(generation, len(generation.prompt.split()), encode=encode)
        delivery = Delivery(
            answer,
            partial(self._cancel, replays),
            merge=generation.merge,
            interval=self._interval,
        )
        replays.append(Replay(delivery, tokens))
        self._live[replays[0]] = None
        self._schedule()
        return delivery.stream

    def _cancel(self, replays: list[Replay]) -> None:
        for replay in replays:
            self._live.pop(replay, None)

    # -- the loop ---------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._due = time.perf_counter()
            self._turn(0)

    def _turn(self, turns: int) -> None:
        loop = asyncio.get_running_loop()
        if turns:
            loop.call_soon(self._turn, turns - 1)
        elif self._step:
            loop.call_soon(self._paced)
        else:
            loop.call_soon(self._unpaced)

    def _paced(self) -> None:
        """A step of so long; one that comes late does not make the next one shorter."""
        now = time.perf_counter()
        self._due = max(now, self._due + self._step)
        time.sleep(self._due - now)
        for replay in tuple(self._live):
            self._say(replay)
        self._go_on()

    def _unpaced(self) -> None:
        """A token for each that has room; a pause when few have."""
        ready = [replay for replay in self._live if not replay.delivery.stream.full]
        for replay in ready:
            self._say(replay)
        if 4 * len(ready) < len(self._live):
            asyncio.get_running_loop().call_later(_AGAIN, self._unpaced)
        else:
            self._go_on()

    def _say(self, replay: Replay) -> None:
        if replay.say():
            self._live.pop(replay, None)

    def _go_on(self) -> None:
        if self._live:
            self._turn(_TURNS)
        else:
            self._scheduled = False
