"""Models written as a `penstock.model.Model`, called as the model process calls them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.python.scripted import FakeCall, FakeReply, FakeRuntime
from penstock.core.errors import ModelLoadError, UnavailableError
from penstock.core.request import InferenceRequest as CoreRequest
from penstock.core.tensor import Tensor as CoreTensor
from penstock.model import (
    Context,
    DataType,
    Input,
    InvalidRequestError,
    Model,
    ModelConfig,
    Output,
    Request,
    Response,
)
from penstock_backends.python.pb_utils.responses import InferenceResponse, TritonError
from penstock_backends.python.pb_utils.tensor import Tensor
from penstock_backends.python.process.asyncio_model import AsyncioModel, call_model

CONFIG = ModelConfig(
    name="m",
    input=(Input("IN", DataType.INT32, dims=(-1,)),),
    output=(Output("OUT", DataType.INT32, dims=(-1,)), Output("TEXT", DataType.BYTES, dims=(1,))),
)


def request(*numbers: int) -> CoreRequest:
    return CoreRequest("m", inputs={"IN": CoreTensor.from_numpy(np.array(numbers, np.int32))})


async def answer(
    cls: type[Model], *numbers: int, reply: FakeReply | None = None, config: ModelConfig = CONFIG
) -> FakeReply:
    """The reply to one request."""
    reply = reply or FakeReply("OUT", "TEXT")
    await AsyncioModel(cls, config).execute([(reply, request(*numbers))])
    return reply


def outputs(reply: FakeReply) -> list[dict[str, Any]]:
    """The outputs of every response."""
    return [
        {tensor.name(): tensor.as_numpy().tolist() for tensor in response.output_tensors()}
        for response in reply.responses
    ]


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (it becomes true on this very loop)
            await asyncio.sleep(0)


class Double(Model):
    async def infer(self, request: Request) -> Response:
        return Response({"OUT": request["IN"] * 2, "TEXT": "doubled"}, parameters={"a": 1})


class Count(Model):
    """Streams one response for each element; records whether it was stopped early."""

    stopped = 0

    async def infer(self, request: Request) -> AsyncIterator[Response]:
        finished = False
        try:
            for number in request["IN"].tolist():
                yield Response({"OUT": number})
                await asyncio.sleep(0)
            finished = True
        finally:
            type(self).stopped += not finished


async def test_coroutine_gives_one_final_response() -> None:
    reply = await answer(Double, 1, 2)
    assert outputs(reply) == [{"OUT": [2, 4], "TEXT": [b"doubled"]}]
    assert (reply.closed, reply.responses[0].core_parameters) == (True, {"a": 1})


async def test_only_requested_outputs_are_sent() -> None:
    assert outputs(await answer(Double, 1, reply=FakeReply("OUT"))) == [{"OUT": [2]}]


async def test_generator_gives_a_stream() -> None:
    reply = await answer(Count, 5, 6, reply=FakeReply("OUT", decoupled=True))
    assert outputs(reply) == [{"OUT": [5]}, {"OUT": [6]}]
    assert reply.closed


async def test_slow_reader_holds_only_its_own_stream_back() -> None:
    slow, fast = FakeReply("OUT", room=1), FakeReply("OUT")
    model = AsyncioModel(Count, CONFIG)
    batch = asyncio.create_task(model.execute([(slow, request(1, 2, 3)), (fast, request(1, 2, 3))]))
    await until(lambda: fast.closed)
    assert (slow.sent, slow.closed) == (1, False)
    slow.acknowledge()
    slow.acknowledge()
    await batch
    assert (slow.sent, slow.closed) == (3, True)


async def test_client_that_leaves_stops_the_stream() -> None:
    before = Count.stopped
    leaver, stayer = FakeReply("OUT", room=1), FakeReply("OUT")
    model = AsyncioModel(Count, CONFIG)
    batch = asyncio.create_task(model.execute([(leaver, request(1, 2)), (stayer, request(1, 2))]))
    await until(lambda: leaver.sent)
    leaver.cancel()
    await batch
    assert Count.stopped == before + 1
    assert (leaver.sent, leaver.closed) == (1, True)
    assert (stayer.sent, stayer.closed) == (2, True)


async def test_client_that_leaves_stops_a_coroutine() -> None:
    class Slow(Model):
        async def infer(self, request: Request) -> Response:
            await asyncio.Event().wait()
            raise AssertionError

    reply = FakeReply("OUT")
    task = asyncio.create_task(answer(Slow, 1, reply=reply))
    await until(lambda: reply._on_cancel)
    reply.cancel()
    await task
    assert (reply.responses, reply.closed) == ([], True)


@pytest.mark.contract("PY-15")
async def test_reader_that_wants_no_more_gets_the_error_of_the_cancelled_task() -> None:
    reply = FakeReply("OUT", room=1)
    batch = asyncio.create_task(AsyncioModel(Count, CONFIG).execute([(reply, request(1, 2))]))
    await until(lambda: reply.sent)
    reply.stop()
    await batch
    assert reply.errors == [(TritonError.CANCELLED, "request was cancelled")]
    assert reply.closed


async def test_requests_of_a_batch_overlap() -> None:
    class Meeting(Model):
        async def load(self, context: Context) -> None:
            self.barrier = asyncio.Barrier(2)

        async def infer(self, request: Request) -> Response:
            await self.barrier.wait()
            return Response({"OUT": request["IN"]})

    model = AsyncioModel(Meeting, CONFIG)
    await model.load(Context("m_0_0", Path(), CONFIG))
    replies = [FakeReply("OUT"), FakeReply("OUT")]
    async with asyncio.timeout(20):
        await model.execute([(replies[0], request(1)), (replies[1], request(2))])
    assert [outputs(reply) for reply in replies] == [[{"OUT": [1]}], [{"OUT": [2]}]]


# -- errors --------------------------------------------------------------------------------------


async def test_error_of_choice_reaches_the_client_as_it_is(process: FakeRuntime) -> None:
    class Picky(Model):
        async def infer(self, request: Request) -> Response:
            raise InvalidRequestError("IN is too long")

    reply = await answer(Picky, 1)
    assert reply.errors == [(TritonError.INVALID_ARG, "IN is too long")]
    assert process.logged == []


async def test_any_other_error_is_internal_and_logged(process: FakeRuntime) -> None:
    reply = await answer(Broken, 1)
    assert reply.errors == [(TritonError.INTERNAL, "ValueError: boom")]
    ((level, text, file, _),) = process.logged
    assert (level, file) == (logging.ERROR, __file__)
    assert text.startswith("ValueError: boom\n\nAt:\n")
    assert text.endswith("infer\n")


@pytest.mark.parametrize("kind", [SystemExit, type("Panic", (BaseException,), {})])
async def test_model_may_raise_a_base_exception(
    process: FakeRuntime, kind: type[BaseException]
) -> None:
    class Panicking(Model):
        async def infer(self, request: Request) -> Response:
            raise kind("enough")

    ((code, text),) = (await answer(Panicking, 1)).errors
    assert (code, text) == (TritonError.INTERNAL, f"{kind.__name__}: enough")


class Broken(Model):
    async def infer(self, request: Request) -> Response:
        raise ValueError("boom")


async def test_failure_of_one_leaves_its_neighbours_alone(process: FakeRuntime) -> None:
    class Odd(Model):
        async def infer(self, request: Request) -> Response:
            if request["IN"][0] % 2:
                raise ValueError("odd")
            return Response({"OUT": request["IN"]})

    replies = [FakeReply("OUT"), FakeReply("OUT")]
    batch = [(replies[0], request(1)), (replies[1], request(2))]
    await AsyncioModel(Odd, CONFIG).execute(batch)
    assert replies[0].errors == [(TritonError.INTERNAL, "ValueError: odd")]
    assert outputs(replies[1]) == [{"OUT": [2]}]


async def test_failure_within_a_stream_ends_it(process: FakeRuntime) -> None:
    class Fading(Model):
        async def infer(self, request: Request) -> AsyncIterator[Response]:
            yield Response({"OUT": 1})
            raise UnavailableError("gone")

    reply = await answer(Fading, 1)
    assert outputs(reply)[0] == {"OUT": [1]}
    assert reply.errors == [(TritonError.UNAVAILABLE, "gone")]
    assert reply.closed


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (None, "the model answered with NoneType, not a Response"),
        (Response({"NOPE": 1}), "the model has no output 'NOPE'"),
        (Response({"OUT": np.array([1.5])}), "output 'OUT' is FP64, not INT32"),
        (Response({"OUT": "text"}), "output 'OUT' is BYTES, not INT32"),
    ],
)
async def test_invalid_response_is_an_error(process: FakeRuntime, made: Any, text: str) -> None:
    class Wrong(Model):
        async def infer(self, request: Request) -> Response:
            answer: Response = made
            return answer

    assert (await answer(Wrong, 1)).errors == [(TritonError.INTERNAL, text)]


async def test_own_cancellation_is_an_error_for_the_client() -> None:
    class GivingUp(Model):
        async def infer(self, request: Request) -> Response:
            raise asyncio.CancelledError

    assert (await answer(GivingUp, 1)).errors == [(TritonError.CANCELLED, "request was cancelled")]


async def test_cancellation_of_a_batch_is_an_error_for_all_of_its_clients() -> None:
    class GivingUp(Model):
        async def infer_batch(self, requests: Sequence[Request]) -> Sequence[Response]:
            raise asyncio.CancelledError

    assert (await answer(GivingUp, 1)).errors == [(TritonError.CANCELLED, "request was cancelled")]


def test_model_must_have_a_verb() -> None:
    class Mute(Model):
        pass

    with pytest.raises(ModelLoadError, match="'Mute' has neither 'infer' nor 'infer_batch'"):
        AsyncioModel(Mute, CONFIG)


# -- batches, readiness --------------------------------------------------------------------------


class Together(Model):
    """Doubles all rows in one go."""

    async def infer_batch(self, requests: Sequence[Request]) -> Sequence[Response]:
        rows = np.concatenate([request["IN"] for request in requests]) * 2
        return [Response({"OUT": row}) for row in np.split(rows, len(requests))]


async def test_batch_can_be_computed_together() -> None:
    replies = [FakeReply("OUT"), FakeReply("OUT")]
    batch = [(replies[0], request(1)), (replies[1], request(2))]
    await AsyncioModel(Together, CONFIG).execute(batch)
    assert [outputs(reply) for reply in replies] == [[{"OUT": [2]}], [{"OUT": [4]}]]
    assert all(reply.closed for reply in replies)


async def test_batch_needs_as_many_answers(process: FakeRuntime) -> None:
    class Short(Model):
        async def infer_batch(self, requests: Sequence[Request]) -> Sequence[Response]:
            return []

    assert (await answer(Short, 1)).errors == [
        (TritonError.INTERNAL, "'infer_batch' returned 0 responses for 1 requests")
    ]


async def test_single_element_gets_a_batch_dimension() -> None:
    class Say(Model):
        async def infer(self, request: Request) -> Response:
            return Response({"TEXT": "hi"})

    config = ModelConfig(name="m", max_batch_size=8, output=CONFIG.output)
    reply = await answer(Say, 1, config=config)
    assert reply.responses[0].output_tensors()[0].shape() == [1, 1]


async def test_readiness_is_that_of_the_model() -> None:
    class Closed(Double):
        async def ready(self) -> bool:
            return False

    assert await AsyncioModel(Double, CONFIG).ready()
    assert not await AsyncioModel(Closed, CONFIG).ready()


async def test_model_is_loaded_and_unloaded() -> None:
    class Diary(Double):
        seen: list[str] = []  # noqa: RUF012 (kept across objects on purpose)

        async def load(self, context: Context) -> None:
            self.seen.append(context.name)

        async def unload(self) -> None:
            self.seen.append("unloaded")

    model = AsyncioModel(Diary, CONFIG)
    await model.load(Context("m_0_0", Path(), CONFIG))
    await model.unload()
    assert Diary.seen == ["m_0_0", "unloaded"]


# -- other models --------------------------------------------------------------------------------


async def test_other_models_are_asked_through_the_server(process: FakeRuntime) -> None:
    process.next_call = FakeCall(
        InferenceResponse([Tensor("Y", np.array([7]))], parameters={"a": 1})
    )
    context = Context("m_0_0", Path(), CONFIG, calls=call_model)
    response = await context.infer("other", {"X": [1, 2]})
    assert (response["Y"].tolist(), response.parameters) == ([7], {"a": 1})
    ((core, decoupled),) = process.calls
    assert (core.model_name, decoupled) == ("other", False)
    assert process.next_call.discarded  # the first response was all that was wanted


async def test_error_of_another_model_is_raised(process: FakeRuntime) -> None:
    failed = TritonError("busy", TritonError.UNAVAILABLE)
    process.next_call = FakeCall(InferenceResponse(error=failed))
    context = Context("m_0_0", Path(), CONFIG, calls=call_model)
    with pytest.raises(UnavailableError, match="busy"):
        await context.infer("other", {})
