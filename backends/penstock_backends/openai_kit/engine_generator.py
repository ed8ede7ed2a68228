"""`EngineGenerator`: a language model of a backend that answers by `Answer` and `Delivery`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.backend import (
    InferenceRequest,
    InferenceResponse,
    InternalError,
    RequestScope,
    ResponseStream,
)
from penstock_backends.language_model import (
    Answer,
    Candidate,
    EncodeAnswer,
    GenerationRequest,
    Logprobs,
    PromptTokens,
    WantedOutputs,
)
from penstock_backends.openai_kit.generator import (
    Generation,
    ModelFacts,
    Piece,
    Position,
    Step,
    Submitted,
    TokenProbability,
)
from penstock_backends.openai_kit.token_prompts import TokenPrompts

Start = Callable[[InferenceRequest, GenerationRequest, EncodeAnswer], ResponseStream]
"""Begins a request whose answer is encoded by the given function; may raise `InferenceError`."""


class EngineGenerator:
    """Submits prompts by `start`; their answers never become tensors.

    `tokenizer` is one of the package `tokenizers`, the model's own, as is that of `prompts`.
    """

    def __init__(
        self, start: Start, tokenizer: Any, prompts: PromptTokens, facts: ModelFacts
    ) -> None:
        self._start = start
        self.facts = facts
        self.prompts = TokenPrompts(tokenizer, prompts, facts)

    def generate(self, generation: Generation) -> Submitted:
        origin = generation.origin
        scope = RequestScope() if origin is None else origin.scope.part()
        scope.report_usage = generation.report_usage
        request = InferenceRequest(
            self.facts.name,
            id=generation.request_id,
            priority=0 if origin is None else origin.priority,
            scope=scope,
        )
        return _EngineSteps(self._start(request, _asked(generation), _as_step))


class _StepResponse(InferenceResponse):
    """A response that holds a step in place of tensors."""

    __slots__ = ("step",)

    def __init__(self, step: Step, *, final: bool) -> None:
        super().__init__(final=final)
        self.step = step


class _EngineSteps:
    """The steps that responses hold; closing it closes the stream."""

    def __init__(self, stream: ResponseStream) -> None:
        self._stream = stream

    def __aiter__(self) -> _EngineSteps:
        return self

    async def begin(self) -> None:
        """An engine refuses at once what it does not take."""

    async def __anext__(self) -> Step:
        response = await self._stream.__anext__()
        if not isinstance(response, _StepResponse):
            raise InternalError("the engine has answered with tensors")
        return response.step

    async def aclose(self) -> None:
        self._stream.close()


def _asked(generation: Generation) -> GenerationRequest:
    return GenerationRequest(
        prompt="",
        stream=not generation.whole,
        prepend_prompt=False,
        parameters=generation.parameters,
        wanted=WantedOutputs(
            logprobs="logprobs" in generation.parameters, token_ids=generation.token_ids
        ),
        input_ids=np.array(generation.prompt.tokens, np.int64),
    )


def _as_step(answer: Answer) -> InferenceResponse:
    pieces = [_piece(index, one) for index, one in enumerate(answer.candidates)]
    return _StepResponse(Step(pieces, answer.cached_tokens), final=answer.finished)


def _piece(index: int, candidate: Candidate) -> Piece:
    logprobs = candidate.logprobs
    return Piece(
        index,
        "".join(candidate.text),
        candidate.tokens,
        candidate.token_ids,
        None if logprobs is None else [_position(one) for one in logprobs],
        candidate.finish_reason,
        candidate.stop_reason,
    )


def _position(given: Logprobs) -> Position:
    """The tokens of one position: the chosen one comes first."""
    return [TokenProbability(one["decoded_token"], one["logprob"]) for one in given.values()]
