"""One backend object in the server executes a batch, whatever it makes of it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from fakes import Script, Tokens, execute, make_inference, make_response, marks, sent
from models.serving.thread_instance.executions import executed, failure, started
from penstock.core.errors import InternalError, UnavailableError
from penstock.core.request import InferenceResponse


async def test_every_request_of_a_batch_gets_its_own_answer() -> None:
    script = Script()
    batch = await executed(script, "abc")
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
    async with started(Script(lambda request: outcomes[request.id])) as instance:
        batch = [make_inference(id) for id in "abcde"]
        await execute(instance, batch)
        one, refused, tokens, stream, odd = batch
        assert await marks(one.stream) == ["a"]
        assert await marks(tokens.stream) == [0, 1]
        assert await marks(stream.stream) == [7]
        assert (await failure(refused)).message == "busy"
        assert type(await failure(odd)) is InternalError


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

    batch = await executed(Script(outcomes=outcomes), "ab")
    assert [(await failure(inference)).message for inference in batch] == [text, text]


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_a_wrong_number_of_outcomes_fails_the_whole_batch(count: int) -> None:
    batch = await executed(Script(outcomes=lambda _: [make_response()] * count), "ab")
    text = f"backend of 'm_0' returned {count} outcomes for 2 requests"
    assert [(await failure(inference)).message for inference in batch] == [text, text]


@pytest.mark.parametrize("nonsense", [None, 7, make_response()])
async def test_what_is_no_list_of_outcomes_fails_the_whole_batch(nonsense: Any) -> None:
    batch = await executed(Script(outcomes=lambda _: nonsense), "ab")
    assert [type(await failure(inference)) for inference in batch] == [InternalError] * 2


async def test_any_iterable_of_outcomes_will_do() -> None:
    batch = await executed(Script(outcomes=lambda requests: map(_marked, requests)), "ab")
    assert [await marks(inference.stream) for inference in batch] == [["a"], ["b"]]


def _marked(request: Any) -> InferenceResponse:
    return make_response(request.id)


async def test_an_instance_that_failed_a_batch_takes_the_next() -> None:
    script = Script(outcomes=lambda requests: None if requests[0].id == "a" else ["x"])
    async with started(script) as instance:
        for id in "ab":
            await execute(instance, [make_inference(id)])
    assert script.batches == [["a"], ["b"]]


async def test_an_execution_returns_before_its_streams_end() -> None:
    end = asyncio.Event()
    async with started(Script(lambda _: Tokens(end=end).generate())) as instance:
        inference = make_inference()
        await asyncio.wait_for(execute(instance, [inference]), 20)
        assert not inference.stream.ended
        end.set()
        assert await marks(inference.stream) == []


@pytest.mark.contract("I-11")
async def test_blocking_work_runs_on_the_instances_own_thread() -> None:
    script, thread = Script(), threading.current_thread()
    async with started(script):
        (context,) = script.contexts
        names = {(await context.run(threading.current_thread)).name for _ in range(3)}
        assert names == {"m_0_0"}
        assert thread.name not in names


async def test_work_on_the_thread_gets_its_arguments_and_raises_its_errors() -> None:
    script = Script()
    async with started(script):
        run = script.contexts[0].run
        assert await run(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await run(divmod, 7, 0)
