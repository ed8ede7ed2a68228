"""One backend object in the server, whatever it does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes import (
    FakeBackend,
    Script,
    Tokens,
    execute,
    make_inference,
    make_response,
    marks,
    model_config,
    sent,
    turns,
)
from penstock.core.backend import Backend, InstanceContext
from penstock.core.errors import (
    InferenceError,
    InternalError,
    RequestCancelledError,
    UnavailableError,
)
from penstock.core.inference import Inference
from penstock.core.request import InferenceResponse
from penstock.core.statistics import Duration, FailureReason, Statistics
from penstock.core.stream import ResponseStream
from penstock.models.instance import ThreadInstance


async def _nowhere(function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
    raise AssertionError("the instance has a thread of its own")


def _instance(backend: type[Backend]) -> ThreadInstance:
    context = InstanceContext("m_0", model_config(), 1, Path("/m/1"), _nowhere)
    return ThreadInstance(backend, context)


@asynccontextmanager
async def _started(script: Script) -> AsyncIterator[ThreadInstance]:
    instance = _instance(script.backend)
    await instance.start()
    yield instance
    await instance.stop()


async def _execute(
    script: Script, ids: str = "a", statistics: Statistics | None = None
) -> list[Inference]:
    """Requests after an execution by an instance of the script's backend."""
    batch = [make_inference(id, statistics=statistics) for id in ids]
    async with _started(script) as instance:
        await execute(instance, batch)
    return batch


async def _failure(inference: Inference) -> InferenceError:
    with pytest.raises(InferenceError) as failed:
        await marks(inference.stream)
    return failed.value


# -- executing -----------------------------------------------------------------------------------


async def test_every_request_of_a_batch_gets_its_own_answer() -> None:
    script = Script()
    batch = await _execute(script, "abc")
    assert [await marks(inference.stream) for inference in batch] == [["a"], ["b"], ["c"]]
    assert script.batches == [["a", "b", "c"]]


async def test_a_batch_may_be_answered_in_every_way_at_once() -> None:
    outcomes: dict[str, Any] = {
        "a": make_response("a"),
        "b": UnavailableError("busy"),
        "c": Tokens(2).generate(),
        "d": sent(make_response(7, final=True)),
        "e": "nonsense",
    }
    async with _started(Script(lambda request: outcomes[request.id])) as instance:
        batch = [make_inference(id) for id in "abcde"]
        await execute(instance, batch)
        one, refused, tokens, stream, odd = batch
        assert await marks(one.stream) == ["a"]
        assert await marks(tokens.stream) == [0, 1]
        assert await marks(stream.stream) == [7]
        assert (await _failure(refused)).message == "busy"
        assert type(await _failure(odd)) is InternalError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad shape"), "ValueError: bad shape"),
        (UnavailableError("out of memory"), "out of memory"),
        (asyncio.CancelledError(), "request was cancelled"),
    ],
)
async def test_a_backend_that_raises_fails_its_whole_batch(error: BaseException, text: str) -> None:
    def outcomes(_: object) -> Any:
        raise error

    batch = await _execute(Script(outcomes=outcomes), "ab")
    assert [(await _failure(inference)).message for inference in batch] == [text, text]


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_a_wrong_number_of_outcomes_fails_the_whole_batch(count: int) -> None:
    batch = await _execute(Script(outcomes=lambda _: [make_response()] * count), "ab")
    text = f"backend of 'm_0' returned {count} outcomes for 2 requests"
    assert [(await _failure(inference)).message for inference in batch] == [text, text]


@pytest.mark.parametrize("nonsense", [None, 7, make_response()])
async def test_what_is_no_list_of_outcomes_fails_the_whole_batch(nonsense: Any) -> None:
    batch = await _execute(Script(outcomes=lambda _: nonsense), "ab")
    assert [type(await _failure(inference)) for inference in batch] == [InternalError] * 2


async def test_any_iterable_of_outcomes_will_do() -> None:
    batch = await _execute(Script(outcomes=lambda requests: map(_marked, requests)), "ab")
    assert [await marks(inference.stream) for inference in batch] == [["a"], ["b"]]


def _marked(request: Any) -> InferenceResponse:
    return make_response(request.id)


async def test_an_instance_that_failed_a_batch_takes_the_next() -> None:
    script = Script(outcomes=lambda requests: None if requests[0].id == "a" else ["x"])
    async with _started(script) as instance:
        for id in "ab":
            await execute(instance, [make_inference(id)])
    assert script.batches == [["a"], ["b"]]


async def test_an_execution_returns_before_its_streams_end() -> None:
    end = asyncio.Event()
    async with _started(Script(lambda _: Tokens(end=end).generate())) as instance:
        inference = make_inference()
        await asyncio.wait_for(execute(instance, [inference]), 1)
        assert not inference.stream.ended
        end.set()
        assert await marks(inference.stream) == []


@pytest.mark.contract("I-11")
async def test_blocking_work_runs_on_the_instances_own_thread() -> None:
    script, thread = Script(), threading.current_thread()
    async with _started(script):
        (context,) = script.contexts
        names = {(await context.run(threading.current_thread)).name for _ in range(3)}
        assert names == {"m_0_0"}
        assert thread.name not in names


async def test_work_on_the_thread_gets_its_arguments_and_raises_its_errors() -> None:
    script = Script()
    async with _started(script):
        run = script.contexts[0].run
        assert await run(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await run(divmod, 7, 0)


# -- leaving -------------------------------------------------------------------------------------


async def test_a_reader_that_leaves_while_its_batch_executes_leaves_the_others_answered() -> None:
    script, statistics = Script(), Statistics()
    script.gate.clear()
    leaving, staying = (make_inference(id, statistics=statistics) for id in "ab")
    async with _started(script) as instance:
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
    script.gate.clear()
    async with _started(script) as instance:
        executing = asyncio.ensure_future(execute(instance, [inference]))
        await turns()
        inference.stream.close()
        script.gate.set()
        await executing
    assert tokens.made == 0


async def test_an_engines_stream_for_a_reader_that_left_meanwhile_is_closed() -> None:
    engine, inference, calls = ResponseStream(), make_inference(), []
    engine.connect(lambda: calls.append("closed"))
    script = Script(lambda _: engine)
    script.gate.clear()
    async with _started(script) as instance:
        executing = asyncio.ensure_future(execute(instance, [inference]))
        await turns()
        inference.stream.close()
        script.gate.set()
        await executing
    assert calls == ["closed"]


async def test_a_reader_that_leaves_a_stream_ends_the_generation_and_no_other() -> None:
    end = asyncio.Event()
    tokens = {id: Tokens(1, end=end) for id in "ab"}
    async with _started(Script(lambda request: tokens[request.id].generate())) as instance:
        leaving, staying = make_inference("a"), make_inference("b")
        await execute(instance, [leaving, staying])
        await anext(leaving.stream)
        leaving.stream.close()
        await turns()
        assert (tokens["a"].closed, tokens["b"].closed) == (True, False)
        end.set()
        assert await marks(staying.stream) == [0]


# -- counting ------------------------------------------------------------------------------------


async def test_an_execution_is_counted_by_its_rows() -> None:
    statistics = Statistics()
    async with _started(Script()) as instance:
        batch = [
            make_inference(id, rows, statistics=statistics) for id, rows in (("a", 3), ("b", 2))
        ]
        await execute(instance, batch)
    assert (statistics.execution_count, list(statistics.batches)) == (1, [5])
    assert statistics.batches[5].compute_infer.ns > 0


async def test_an_execution_that_failed_is_counted_as_an_execution_only() -> None:
    statistics = Statistics()
    await _execute(Script(outcomes=lambda _: None), "ab", statistics)
    assert (statistics.execution_count, statistics.inference_count) == (1, 0)
    assert statistics.success == Duration()
    assert statistics.failures == {FailureReason.BACKEND: 2}


@pytest.mark.parametrize("count", [2, 0])
async def test_a_stream_is_one_success_when_it_has_ended(count: int) -> None:
    statistics, end = Statistics(), asyncio.Event()
    tokens = Tokens(count, end=end)
    async with _started(Script(lambda _: tokens.generate())) as instance:
        inference = make_inference(statistics=statistics)
        await execute(instance, [inference])
        assert statistics.success.count == 0
        end.set()
        await marks(inference.stream)
    assert (statistics.success.count, statistics.fail.count) == (1, 0)


async def test_a_stream_that_breaks_is_one_failure_of_the_backend() -> None:
    statistics, tokens = Statistics(), Tokens(2, error=OSError("gone"))
    async with _started(Script(lambda _: tokens.generate())) as instance:
        inference = make_inference(statistics=statistics)
        await execute(instance, [inference])
        await _failure(inference)
    assert statistics.failures == {FailureReason.BACKEND: 1}
    assert statistics.success.count == 0


# -- start and end -------------------------------------------------------------------------------


async def test_an_instance_is_available_between_start_and_stop() -> None:
    instance = _instance(Script().backend)
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

    instance = _instance(Refusing)
    with pytest.raises(ValueError, match="no number"):
        await instance.start()
    assert not instance.available
    assert not await instance.healthy()


async def test_stopping_finalizes_the_backend() -> None:
    script = Script()
    async with _started(script):
        assert script.finalized == 0
    assert script.finalized == 1


async def test_a_backend_may_use_its_thread_until_it_is_finalized() -> None:
    class Releasing(FakeBackend):
        async def finalize(self) -> None:
            await self.script.contexts[0].run(self.script.batches.clear)

    script = Script(batches=[["left"]])
    instance = _instance(type("Scripted", (Releasing,), {"script": script}))
    await instance.start()
    await instance.stop()
    assert script.batches == []


async def test_stopping_cancels_streams_that_go_on() -> None:
    tokens, inference = Tokens(1, end=asyncio.Event()), make_inference()
    async with _started(Script(lambda _: tokens.generate())) as instance:
        await execute(instance, [inference])
        await anext(inference.stream)
    assert tokens.closed
    assert type(await _failure(inference)) is RequestCancelledError


async def test_stopping_leaves_a_slow_reader_what_was_sent() -> None:
    inference = make_inference()
    async with _started(Script(lambda _: Tokens(5).generate())) as instance:
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

    instance = _instance(Script(lambda _: generate()).backend)
    inference = make_inference()
    await instance.start()
    await execute(instance, [inference])
    await turns()
    stopping = asyncio.ensure_future(instance.stop())
    await turns()
    assert not stopping.done()
    clean.set()
    await asyncio.wait_for(stopping, 1)
    assert done == ["clean"]
    assert await marks(inference.stream) == [1]


async def test_a_backend_that_fails_to_finalize_says_so_and_gives_its_thread_back() -> None:
    class Stuck(FakeBackend):
        async def finalize(self) -> None:
            raise OSError("device lost")

    script = Script()
    instance = _instance(type("Scripted", (Stuck,), {"script": script}))
    await instance.start()
    with pytest.raises(OSError, match="device lost"):
        await instance.stop()
    with pytest.raises(RuntimeError, match="shutdown"):
        await script.contexts[0].run(print)


# -- what the backend says of itself -------------------------------------------------------------


class Talking(FakeBackend):
    """Says of itself what `said` says."""

    said: Any = None

    async def healthy(self) -> bool:
        return bool(self.said())

    def metrics(self) -> Any:
        return {"load": self.said()}


async def _talking(said: Callable[[], Any]) -> ThreadInstance:
    attributes = {"script": Script(), "said": staticmethod(said)}
    instance = _instance(type("Scripted", (Talking,), attributes))
    await instance.start()
    return instance


@pytest.mark.parametrize("health", [True, False])
async def test_an_instance_is_as_healthy_as_its_backend(health: bool) -> None:
    instance = await _talking(lambda: health)
    assert await instance.healthy() is health
    assert instance.metrics() == {"load": health}
    await instance.stop()
    assert not await instance.healthy()


async def test_a_backend_that_cannot_say_how_it_is_is_not_healthy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    instance = await _talking(lambda: 1 / 0)
    assert not await instance.healthy()
    assert caplog.messages == ["asking instance 'm_0' for its health failed"]
    await instance.stop()


async def test_a_backend_that_cannot_say_its_numbers_has_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    instance = await _talking(lambda: 1 / 0)
    assert instance.metrics() == {}
    assert caplog.messages == ["asking instance 'm_0' for its numbers failed"]
    await instance.stop()


def test_a_backend_says_whether_it_is_serial() -> None:
    async def serial(value: bool) -> bool:
        return _instance(type("Scripted", (FakeBackend,), {"serial": value})).serial

    assert [asyncio.run(serial(value)) for value in (True, False)] == [True, False]


async def test_what_it_was_given_is_answered_when_execution_and_streams_have_ended() -> None:
    end, script = asyncio.Event(), Script()
    script.gate.clear()
    script.answer = lambda _: Tokens(2, end=end).generate()
    async with _started(script) as instance:
        inference = make_inference()
        instance.execute([inference], lambda: None)
        waiting = asyncio.ensure_future(instance.answered())
        script.gate.set()
        await turns()
        assert not waiting.done()
        end.set()
        assert await marks(inference.stream) == [0, 1]
        await asyncio.wait_for(waiting, 1)


async def test_an_instance_without_requests_has_answered_them() -> None:
    async with _started(Script()) as instance:
        await asyncio.wait_for(instance.answered(), 1)
