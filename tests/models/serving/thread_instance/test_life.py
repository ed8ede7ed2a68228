"""How an instance starts, and how it ends with all that it has begun."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fakes import FakeBackend, Script, Tokens, execute, make_inference, make_response, marks, turns
from models.serving.thread_instance.executions import failure, started, thread_instance
from penstock.core.backend import InstanceContext
from penstock.core.errors import RequestCancelledError
from penstock.core.request import InferenceResponse


async def test_an_instance_is_available_between_start_and_stop() -> None:
    instance = thread_instance(Script().backend)
    available = [instance.available]
    await instance.start()
    available.append(instance.available)
    await instance.stop()
    available.append(instance.available)
    assert available == [False, True, False]


async def test_a_backend_that_refuses_to_load_is_not_available() -> None:
    class Refusing(FakeBackend):
        async def initialize(self, context: InstanceContext) -> None:
            await context.run(int, "no number")

    instance = thread_instance(Refusing)
    with pytest.raises(ValueError, match="no number"):
        await instance.start()
    assert not instance.available
    assert not await instance.healthy()


async def test_stopping_finalizes_the_backend() -> None:
    script = Script()
    async with started(script):
        assert script.finalized == 0
    assert script.finalized == 1


async def test_a_backend_may_use_its_thread_until_it_is_finalized() -> None:
    class Releasing(FakeBackend):
        async def finalize(self) -> None:
            await self.script.contexts[0].run(self.script.batches.clear)

    script = Script(batches=[["left"]])
    instance = thread_instance(type("Scripted", (Releasing,), {"script": script}))
    await instance.start()
    await instance.stop()
    assert script.batches == []


async def test_stopping_cancels_streams_that_go_on() -> None:
    tokens, inference = Tokens(1, end=asyncio.Event()), make_inference()
    async with started(Script(lambda _: tokens.generate())) as instance:
        await execute(instance, [inference])
        await anext(inference.stream)
    assert tokens.closed
    assert type(await failure(inference)) is RequestCancelledError


async def test_stopping_leaves_a_slow_reader_what_was_sent() -> None:
    inference = make_inference()
    async with started(Script(lambda _: Tokens(5).generate())) as instance:
        await execute(instance, [inference])
        await turns(20)
    assert await marks(inference.stream) == [0, 1, 2, 3, 4]


async def test_stopping_waits_for_a_generator_that_is_cleaning_up() -> None:
    clean = asyncio.Event()
    done = []

    async def generate() -> AsyncIterator[InferenceResponse]:
        try:
            yield make_response(1, final=True)
        finally:
            await clean.wait()
            done.append("clean")

    instance = thread_instance(Script(lambda _: generate()).backend)
    inference = make_inference()
    await instance.start()
    await execute(instance, [inference])
    await turns()
    stopping = asyncio.ensure_future(instance.stop())
    await turns()
    assert not stopping.done()
    clean.set()
    await asyncio.wait_for(stopping, 20)
    assert done == ["clean"]
    assert await marks(inference.stream) == [1]


async def test_a_backend_that_fails_to_finalize_says_so_and_gives_its_thread_back() -> None:
    class Stuck(FakeBackend):
        async def finalize(self) -> None:
            raise OSError("device lost")

    script = Script()
    instance = thread_instance(type("Scripted", (Stuck,), {"script": script}))
    await instance.start()
    with pytest.raises(OSError, match="device lost"):
        await instance.stop()
    with pytest.raises(RuntimeError, match="shutdown"):
        await script.contexts[0].run(print)
