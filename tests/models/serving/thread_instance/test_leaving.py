"""Readers that leave while an instance has their requests."""

from __future__ import annotations

import asyncio

from fakes import Script, Tokens, execute, make_inference, marks, turns
from models.serving.thread_instance.executions import started
from penstock.core.stream import ResponseStream
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import FailureReason, Statistics


async def _leave_while_executing(script: Script, inference: Inference) -> None:
    script.gate.clear()
    async with started(script) as instance:
        executing = asyncio.ensure_future(execute(instance, [inference]))
        await turns()
        inference.stream.close()
        script.gate.set()
        await executing


async def test_a_reader_that_leaves_while_its_batch_executes_leaves_the_others_answered() -> None:
    script, statistics = Script(), Statistics()
    script.gate.clear()
    leaving, staying = (make_inference(id, statistics=statistics) for id in "ab")
    async with started(script) as instance:
        executing = asyncio.ensure_future(execute(instance, [leaving, staying]))
        await turns()
        leaving.stream.close()
        script.gate.set()
        await executing
    assert await marks(staying.stream) == ["b"]
    assert statistics.failures == {FailureReason.CANCELED: 1}
    assert statistics.in_flight == statistics.pending == 0


async def test_a_stream_for_a_reader_that_left_meanwhile_never_begins() -> None:
    tokens, inference = Tokens(5), make_inference()
    script = Script(lambda _: tokens.generate())
    await _leave_while_executing(script, inference)
    assert tokens.made == 0


async def test_an_engines_stream_for_a_reader_that_left_meanwhile_is_closed() -> None:
    engine, inference, calls = ResponseStream(), make_inference(), []
    engine.connect(lambda: calls.append("closed"))
    script = Script(lambda _: engine)
    await _leave_while_executing(script, inference)
    assert calls == ["closed"]


async def test_a_reader_that_leaves_a_stream_ends_the_generation_and_no_other() -> None:
    end = asyncio.Event()
    tokens = {id: Tokens(1, end=end) for id in "ab"}
    async with started(Script(lambda request: tokens[request.id].generate())) as instance:
        leaving, staying = make_inference("a"), make_inference("b")
        await execute(instance, [leaving, staying])
        await anext(leaving.stream)
        leaving.stream.close()
        await turns()
        assert (tokens["a"].closed, tokens["b"].closed) == (True, False)
        end.set()
        assert await marks(staying.stream) == [0]
