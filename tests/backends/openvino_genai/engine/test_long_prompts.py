"""Prompts that are long enough to be made tokens of on the instance's thread, with the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from backends.generation import start, token_ids, until, usage
from backends.openvino_genai.asking import ask, client_for, opened
from backends.openvino_genai.scripted import ScriptedPipeline, sequences, unready
from penstock.core.errors import InvalidRequestError, UnavailableError
from penstock.testing import RunningInstance
from penstock_backends.language_model import prompt_tokens
from penstock_backends.openvino_genai.engine import GenAiEngine

pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")

LONG = "The with statement is used to open a file. " * 4


@pytest.fixture(autouse=True)
def few_characters_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's context has no room for what takes long."""
    monkeypatch.setattr(prompt_tokens, "LONG", len(LONG) - 1)


@asynccontextmanager
async def busy_thread(instance: RunningInstance) -> AsyncIterator[Event]:
    """The instance's thread does something else until the event is set."""
    backend: Any = instance.backend
    free = Event()
    work = asyncio.ensure_future(backend._prompts._run(free.wait))
    try:
        yield free
    finally:
        free.set()
        await work


def requests(instance: RunningInstance) -> list[float]:
    """Those that the engine was given, and of these the ones that were cancelled or failed."""
    metrics = instance.backend.metrics()
    names = "requests", "cancelled_requests", "failed_requests"
    return [metrics[f"penstock_llm_{name}_total"] for name in names]


async def test_nobody_waits_for_the_tokens_of_a_long_prompt(instance: RunningInstance) -> None:
    backend: Any = instance.backend
    ids = backend._tokenizer.encode(LONG).ids
    async with busy_thread(instance) as free:
        long = asyncio.ensure_future(ask(instance, LONG, max_tokens=8))
        assert (await ask(instance, max_tokens=8)).finals[-1]
        assert usage(instance)[:2] == (0, 1)
        free.set()
        answer = await long
    given = {"input_ids": token_ids(*ids), "return_num_input_tokens": True}
    assert answer.text == (await ask(instance, inputs=given, max_tokens=8)).text
    told = {"return_num_input_tokens": True, "stream": True}
    assert (await ask(instance, LONG, inputs=told, max_tokens=1)).all("num_input_tokens") == [
        [len(ids)]
    ]


async def test_a_client_may_leave_while_tokens_are_made(instance: RunningInstance) -> None:
    async with busy_thread(instance):
        gone = asyncio.ensure_future(anext(start(instance, LONG, max_tokens=8)))
        await until(lambda: usage(instance)[1] == 1)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert usage(instance) == (0, 0, 0.0)
    assert requests(instance) == [0, 0, 0]
    assert (await ask(instance, LONG, max_tokens=2)).finals[-1]


async def test_too_many_tokens_are_refused_as_those_of_a_short_prompt(
    own_gguf_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_gguf_version / "model.json").write_text('{"max_model_len": 32}')
    async with opened(own_gguf_version) as instance:
        with pytest.raises(InvalidRequestError) as on_the_thread:
            await ask(instance, LONG)
        assert usage(instance)[1] == 0
        assert requests(instance) == [0, 0, 0]
        monkeypatch.setattr(prompt_tokens, "LONG", len(LONG))
        with pytest.raises(InvalidRequestError) as at_once:
            await ask(instance, LONG)
        assert on_the_thread.value.message == at_once.value.message
        assert "but the model's context length is 32 tokens" in at_once.value.message


async def test_an_unload_ends_those_that_have_no_tokens_yet(own_gguf_version: Path) -> None:
    async with opened(own_gguf_version) as instance, busy_thread(instance):
        waiting = asyncio.ensure_future(ask(instance, LONG))
        await until(lambda: usage(instance)[1] == 1)
        await instance.backend.finalize()
        with pytest.raises(UnavailableError, match="the model is being unloaded"):
            await waiting


async def test_prompts_of_openais_api_wait_for_the_same_thread(instance: RunningInstance) -> None:
    client = await client_for(instance)
    chat: Any = {"model": "m", "max_tokens": 4, "temperature": 0}
    messages: Any = [{"role": "user", "content": LONG}]
    async with busy_thread(instance) as free:
        long = [
            asyncio.ensure_future(client.completions.create(prompt=LONG, **chat)),
            asyncio.ensure_future(client.chat.completions.create(messages=messages, **chat)),
        ]
        short = await client.completions.create(prompt="The file", **chat)
        assert short.choices[0].finish_reason == "length"
        assert not any(one.done() for one in long)
        free.set()
        answers = await asyncio.gather(*long)
    assert [one.choices[0].finish_reason for one in answers] == ["length"] * 2


# -- its place in the queue, over a scripted pipeline ----------------------------------------------


async def test_a_request_keeps_its_place_until_its_prompt_is_there() -> None:
    """The engine runs one at a time: what came before is next again, once it is ready."""
    engine = GenAiEngine(ScriptedPipeline(), max_running=1, max_waiting=8)
    late, first, second = unready(max_tokens=2), sequences(max_tokens=2), sequences(max_tokens=2)
    ended: list[str] = []

    async def read(name: str, request: list[Any]) -> None:
        async for _ in request[0].delivery.stream:
            pass
        ended.append(name)

    for request in (late, first, second):
        engine.submit(request)
    reading = [
        asyncio.ensure_future(read(name, request))
        for name, request in (("late", late), ("first", first), ("second", second))
    ]
    await until(lambda: engine.metrics()["penstock_llm_running_requests"] == 1)
    late[0].prepare([1], 2)
    engine.prepared()
    await asyncio.gather(*reading)
    assert ended == ["first", "late", "second"]
    assert engine.metrics()["penstock_llm_requests_total"] == 3


async def test_an_engine_rests_while_it_waits_for_a_prompt() -> None:
    pipeline = ScriptedPipeline()
    engine = GenAiEngine(pipeline, max_running=1, max_waiting=0)
    waits = unready(max_tokens=2)
    engine.submit(waits)
    for _ in range(20):
        await asyncio.sleep(0)
    assert pipeline.steps == 0
    engine.withdraw(waits)
    engine.submit(sequences(max_tokens=1))
    assert engine.metrics()["penstock_llm_waiting_requests"] == 1
