"""Clients of OpenAI's API that leave, in each phase, as the engine's counters tell it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backends.conftest import write_settings
from backends.exchanging import application, begin, whole
from backends.generation import until, usage
from backends.openvino_genai.asking import opened, settled
from penstock.core.application import BackendApplication
from penstock.core.request import ExchangePart
from penstock.core.stream import ResponseStream
from penstock.testing import RunningInstance

pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")

CHAT = "/v1/chat/completions"
ANSWERED = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


def endless(content: str = "hello", *, stream: bool = True) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    more = {"max_tokens": 900, "ignore_eos": True, "stream": stream}
    return {"model": "m", "messages": messages, **more}


@asynccontextmanager
async def served(
    version: Path, **settings: Any
) -> AsyncIterator[tuple[RunningInstance, BackendApplication]]:
    write_settings(version, num_kv_blocks=64, **settings)
    async with opened(version) as instance, application(instance.backend) as app:
        yield instance, app


def metric(instance: RunningInstance, name: str) -> float:
    return float(instance.backend.metrics()[f"penstock_llm_{name}_total"])


async def first_text(stream: ResponseStream) -> None:
    """Read up to the first event with text."""
    async for part in stream:
        if isinstance(part, ExchangePart) and b'"content":"' in part.body:
            return


async def nothing_is_left(
    instance: RunningInstance, app: BackendApplication, cancelled: int
) -> None:
    """The engine is idle and serves on."""
    await until(lambda: metric(instance, "cancelled_requests") == cancelled)
    await settled()
    assert usage(instance) == (0, 0, 0.0)
    assert (await whole(begin(app, CHAT, ANSWERED)))[0] == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_while_waiting_takes_no_turn(own_gguf_version: Path, stream: bool) -> None:
    async with served(own_gguf_version, max_num_seqs=1) as (instance, app):
        running = begin(app, CHAT, endless())
        await first_text(running)
        waiting = begin(app, CHAT, endless(stream=stream))
        await until(lambda: usage(instance)[1] == 1)
        waiting.close()
        await until(lambda: usage(instance)[1] == 0)
        assert usage(instance)[0] == 1
        await first_text(running)
        running.close()
        await nothing_is_left(instance, app, 2)


@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_in_the_prompt_generates_nothing(
    own_gguf_version: Path, stream: bool
) -> None:
    """The prompt takes many steps, and the client leaves after the first of them."""
    async with served(own_gguf_version, max_num_batched_tokens=32) as (instance, app):
        body = {**endless("word " * 400, stream=stream), "max_tokens": 16}
        prompt = begin(app, CHAT, body)
        await until(lambda: metric(instance, "engine_steps") == 2)
        assert usage(instance)[0] == 1
        prompt.close()
        await until(lambda: usage(instance)[0] == 0)
        assert metric(instance, "generation_tokens") == 0
        await nothing_is_left(instance, app, 1)


@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_while_text_is_made_frees_the_cache(
    own_gguf_version: Path, stream: bool
) -> None:
    async with served(own_gguf_version) as (instance, app):
        made = begin(app, CHAT, endless(stream=stream))
        await until(lambda: metric(instance, "generation_tokens") > 2)
        assert usage(instance)[2] > 0
        made.close()
        await nothing_is_left(instance, app, 1)
        assert metric(instance, "generation_tokens") < 900


async def test_those_who_stay_notice_nothing(own_gguf_version: Path) -> None:
    """Half of the clients leave, each at another moment."""
    async with served(own_gguf_version, max_num_seqs=3) as (instance, app):
        asked = {**ANSWERED, "max_tokens": 24, "ignore_eos": True, "temperature": 0}
        alone = await whole(begin(app, CHAT, asked))
        staying = [asyncio.ensure_future(whole(begin(app, CHAT, asked))) for _ in range(6)]
        for steps in range(6):
            leaving = begin(app, CHAT, endless())
            await until(partial(_reached, instance, metric(instance, "engine_steps") + steps))
            leaving.close()
        told = [_text(await one) for one in staying]
        assert told == [_text(alone)] * 6
        await until(lambda: usage(instance)[:2] == (0, 0))


def _reached(instance: RunningInstance, steps: float) -> bool:
    return metric(instance, "engine_steps") >= steps


def _text(answer: tuple[int, str]) -> str:
    status, body = answer
    assert status == 200
    return body.partition('"choices"')[2]
