"""Calls of a model by an endpoint: several prompts at once, whole or step by step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from penstock.backend import InferenceError, InferenceRequest
from penstock_backends.language_model import UsageSum
from penstock_backends.openai_kit.asgi import Exchange
from penstock_backends.openai_kit.errors import api_error
from penstock_backends.openai_kit.generator import (
    Generation,
    Generator,
    Position,
    Step,
    Steps,
    Submitted,
)
from penstock_backends.openai_kit.usage import Usage


@dataclass(slots=True)
class WholeAnswer:
    """One of the answers to a prompt."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Position] = field(default_factory=list)
    finish_reason: str = "stop"
    stop_reason: int | str | None = None


async def submit(
    generator: Generator,
    generations: Sequence[Generation],
    exchange: Exchange,
    renamed: Mapping[str, str],
) -> Sequence[Steps]:
    """Submit prompts, and wait until the model has taken all of them.

    If one is refused, or the client leaves, none is left running. Raises `ApiError`.
    """
    streams: list[Submitted] = []
    try:
        for one in _known_to_the_server(generations, exchange):
            steps = generator.generate(one)
            streams.append(steps)  # those before a refusal stay
        for steps in streams:
            await steps.begin()
    except BaseException as error:  # a refusal, or the client has left
        await close(streams)
        if isinstance(error, InferenceError):
            raise api_error(error, renamed) from error
        raise
    return streams


def _known_to_the_server(
    generations: Sequence[Generation], exchange: Exchange
) -> Iterator[Generation]:
    """The same prompts, as parts of the request that the server has admitted.

    Several are not in its timeline, which has room for the times and tokens of one.
    """
    origin: InferenceRequest | None = exchange.known.get("request")
    infer = exchange.known.get("infer")
    report = None if origin is None else origin.scope.report_usage
    usage = None if report is None else UsageSum(report)
    if origin is not None and len(generations) > 1:
        scope = origin.scope.part()
        scope.timeline = None
        origin = origin._replace(scope=scope)
    for generation in generations:
        report_part = None if usage is None else usage.part()
        yield replace(generation, origin=origin, report_usage=report_part, infer=infer)


async def close(streams: Sequence[Steps]) -> None:
    """Cancel what runs."""
    for stream in streams:
        await stream.aclose()


async def collect(steps: Steps, count: int, usage: Usage) -> list[WholeAnswer]:
    """All `count` answers to one prompt."""
    answers = [WholeAnswer() for _ in range(count)]
    async with aclosing(steps):
        async for step in steps:
            usage.add(step)
            for piece in step.pieces:
                answer = answers[piece.answer]
                answer.text += piece.text
                answer.token_ids.extend(piece.token_ids)
                answer.logprobs.extend(piece.logprobs or ())
                answer.finish_reason = piece.finish_reason or answer.finish_reason
                answer.stop_reason = piece.stop_reason
    return answers


async def interleaved(streams: Sequence[Steps]) -> AsyncGenerator[tuple[int, Step], None]:
    """The steps of all streams, as they come, with the number of their stream."""
    if len(streams) == 1:
        async for step in streams[0]:
            yield 0, step
        return
    waiting = {asyncio.ensure_future(anext(s, None)): n for n, s in enumerate(streams)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                number = waiting.pop(future)
                if (later := future.result()) is not None:
                    yield number, later
                    waiting[asyncio.ensure_future(anext(streams[number], None))] = number
    finally:
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
