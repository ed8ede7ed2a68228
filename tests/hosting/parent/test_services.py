"""Requests that a model process makes of the server: answered there, in order, as there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from penstock.core.call_chain import CallingInstance, NestedCall, Wait
from penstock.core.delivery import deliver
from penstock.core.errors import (
    InvalidRequestError,
    NotFoundError,
    RequestCancelledError,
    UnsupportedError,
)
from penstock.core.flow_control import WINDOW
from penstock.core.request import InferenceRequest, InferenceResponse, Sender
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.hosting.link.arena import create
from penstock.hosting.link.memory import SharedMemory
from penstock.hosting.link.messages import Kind, pack_request, unpack_response
from penstock.hosting.parent.services import ServedCalls
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics

Said = tuple[Kind, Any]


class FakeServices:
    """Gives every request a stream, by the request's id; the model `many` is decoupled."""

    propagates = False

    def __init__(self) -> None:
        self.streams: dict[str, ResponseStream] = {}
        self.requests: list[InferenceRequest] = []
        self.closed: list[str] = []
        self.owners: list[str] = []
        self.over: list[str] = []
        self.gate = asyncio.Event()

    def infer(self, request: InferenceRequest) -> ResponseStream:
        if request.model_name == "nope":
            raise InvalidRequestError("unexpected shape")
        stream = ResponseStream()
        stream.connect(lambda: self.closed.append(request.id))
        self.requests.append(request)
        self.streams[request.id] = stream
        return stream

    def decoupled(self, name: str, version: str) -> bool:
        if name == "unknown":
            raise NotFoundError("Request for unknown model: 'unknown' is not found")
        return name == "many"

    async def control(self, verb: str, arguments: Sequence[Any]) -> Any:
        if verb == "wait":
            await self.gate.wait()
        if verb == "fail":
            raise UnsupportedError("not that")
        return [verb, *arguments]

    def metric(self, owner: str, operation: str, arguments: Sequence[Any]) -> Any:
        if operation == "fail":
            raise ZeroDivisionError("no metric")
        self.owners.append(owner)
        return [operation, *arguments]

    def ended(self, owner: str) -> None:
        self.over.append(owner)


class Process:
    """The model process's side, by hand."""

    def __init__(self, pid: int = 1, *, decoupled: bool = False) -> None:
        self.batch: list[Inference] = []
        self.services = FakeServices()
        self.said: list[Said] = []
        memory = SharedMemory(out=create(1 << 24), into=create(1 << 24))
        self._exchange = memory.codec
        memory.open(lambda _: None)
        self.calls = ServedCalls(
            self.services,
            CallingInstance("m_0_0"),
            pid,
            memory,
            self._hear,
            lambda: self.batch,
            decoupled=decoupled,
        )

    def call(
        self, id: str, model: str = "once", *, decoupled: bool = False, holds: bool = False
    ) -> None:
        """Make a request; its number is the length of its id."""
        packed, payload = pack_request(len(id), InferenceRequest(model, id=id))
        self.tell(Kind.CALL, (decoupled, holds, packed), b"".join(payload))

    def tell(self, kind: Kind, header: Any, payload: bytes = b"") -> None:
        self.calls.handlers[kind](header, memoryview(payload))

    def heard(self, kind: Kind) -> list[Any]:
        """The headers of the messages of one kind."""
        return [header for said, header in self.said if said is kind]

    @property
    def numbers(self) -> list[int]:
        """The parameters `n` of the responses that came."""
        return [response.parameters["n"] for _, response in self.heard(Kind.CALLED)]

    def _hear(self, kind: Kind, header: Any, payload: Sequence[Any] = ()) -> None:
        if kind is Kind.CALLED:
            number, packed = header
            response = unpack_response(packed, memoryview(b"".join(payload)), self._exchange)
            header = number, response
        self.said.append((kind, header))


def response(number: int, *, final: bool = False) -> InferenceResponse:
    return InferenceResponse(parameters={"n": number}, final=final)


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


# -- for whom -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deadlines", "decoupled", "expected"),
    [((5.0, 7.0), False, 7.0), ((5.0, None), False, None), ((5.0,), True, None), ((), False, None)],
    ids=["the last", "somebody waits", "decoupled", "nobody"],
)
async def test_request_has_the_time_of_those_that_it_is_made_for(
    deadlines: tuple[float | None, ...], decoupled: bool, expected: float | None
) -> None:
    process = Process(decoupled=decoupled)
    process.batch += [
        Inference(InferenceRequest("m", deadline=deadline), 1, Statistics())
        for deadline in deadlines
    ]
    process.call("a")
    assert process.services.requests[0].deadline == expected


@pytest.mark.parametrize(
    ("senders", "expected"),
    [
        ((Sender("a", 1), Sender("a", 1)), Sender("a", 1)),
        ((Sender("a"), Sender("b")), None),
        ((Sender("a"), None), None),
        ((), None),
    ],
    ids=["one tenant", "two", "one and nobody", "nobody"],
)
async def test_request_is_sent_by_the_tenant_that_it_is_made_for(
    senders: tuple[Sender | None, ...], expected: Sender | None
) -> None:
    process = Process()
    process.batch += [
        Inference(InferenceRequest("m", sender=sender), 1, Statistics()) for sender in senders
    ]
    process.call("a")
    assert process.services.requests[0].sender == expected


async def test_request_is_for_those_that_wait_for_its_maker_and_for_that() -> None:
    process, outer, inner = (
        Process(),
        NestedCall(CallingInstance("a_0")),
        NestedCall(CallingInstance("b_0")),
    )
    process.batch += [_inference(outer), _inference(outer, inner)]
    process.call("a", holds=True)
    *former, last = process.services.requests[0].call_chain
    assert former == [outer, inner]
    assert (last.caller.instance, last.blocking) == ("m_0_0", True)


async def test_who_waits_for_an_execution_that_calls_waits_for_this_instance() -> None:
    process, others = Process(), [CallingInstance("m_0_0"), CallingInstance("m_0_1")]
    inference = _inference(outer := NestedCall(CallingInstance("a_0"), blocking=True))
    inference.wait = Wait(outer, lambda: others)
    process.batch.append(inference)
    process.call("a", holds=True)
    assert list(inference.wait.instances()) == [process.services.requests[0].call_chain[-1].caller]


def _inference(*calls: NestedCall) -> Inference:
    return Inference(InferenceRequest("m", call_chain=calls), 1, Statistics())


# -- requests -------------------------------------------------------------------------------------


async def test_call_is_answered() -> None:
    process = Process()
    process.call("x")
    await turn()
    tensor = Tensor.from_numpy(np.arange(3, dtype=np.int32))
    process.services.streams["x"].send(InferenceResponse({"OUT": tensor}, final=True))
    ((number, answer),) = process.heard(Kind.CALLED)
    assert number == 1
    assert answer.outputs["OUT"].numpy().tolist() == [0, 1, 2]
    assert len(process.said) == 1


async def test_end_without_a_response_is_told() -> None:
    process = Process()
    process.call("x", "many", decoupled=True)
    process.services.streams["x"].end()
    await turn()
    assert process.said == [(Kind.CALL_END, 1)]


async def test_failure_is_told() -> None:
    process = Process()
    process.call("x")
    process.services.streams["x"].fail(NotFoundError("gone"))
    await turn()
    assert process.said == [(Kind.CALL_ERROR, (1, "NOT_FOUND", "gone"))]


async def test_refusal_is_told_at_once() -> None:
    process = Process()
    process.call("x", "nope")
    text = "Model nope - Error when running inference: unexpected shape"
    assert process.said == [(Kind.CALL_ERROR, (1, "INVALID_ARG", text))]


async def test_model_that_is_not_there_is_not_ready() -> None:
    process = Process()
    process.call("x", "unknown")
    text = "Failed for execute the inference request. Model 'unknown' is not ready."
    text = f"Model unknown - Error when running inference: {text}"
    assert process.said == [(Kind.CALL_ERROR, (1, "NOT_FOUND", text))]


async def test_decoupled_model_is_only_for_calls_that_expect_it() -> None:
    process = Process()
    process.call("x", "many")
    ((number, code, text),) = process.heard(Kind.CALL_ERROR)
    assert (number, code) == (1, "INVALID_ARG")
    assert text == (
        "Model many - Error when running inference: Model many is using the decoupled. The current"
        " BLS request call doesn't support models using the decoupled transaction policy. Please"
        " use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models.'"
    )


async def test_response_that_cannot_travel_ends_its_call_alone() -> None:
    process = Process()
    process.call("a")
    process.call("bb")
    await turn()
    unfit: Any = {"n": object()}
    process.services.streams["a"].send(InferenceResponse(parameters=unfit))
    process.services.streams["bb"].send(response(2, final=True))
    ((number, code, _),) = process.heard(Kind.CALL_ERROR)
    assert (number, code) == (1, "INTERNAL")
    assert process.services.closed == ["a"]
    assert process.numbers == [2]


# -- back-pressure --------------------------------------------------------------------------------


async def test_no_more_is_sent_than_there_is_room_for() -> None:
    process = Process()
    process.call("x", "many", decoupled=True)
    await turn()
    for number in range(100):
        process.services.streams["x"].send(response(number))
    assert process.numbers == list(range(WINDOW.responses))
    process.tell(Kind.CALL_TAKEN, (1, 5))
    assert process.numbers == list(range(WINDOW.responses + 5))


async def test_responses_of_an_engine_that_pushes_keep_their_order() -> None:
    """Taking some lets others follow at once, from below."""
    process = Process()
    process.call("x", "many", decoupled=True)
    engine = ResponseStream()
    for number in range(200):
        engine.send(response(number))
    engine.end()
    deliver(engine, process.services.streams["x"])
    await turn()
    while process.said[-1][0] is Kind.CALLED:
        process.tell(Kind.CALL_TAKEN, (1, 3))
    assert process.numbers == list(range(200))
    assert process.said[-1] == (Kind.CALL_END, 1)


# -- cancellation ---------------------------------------------------------------------------------


async def test_cancelled_call_cancels_its_request() -> None:
    process = Process()
    process.call("a")
    process.call("bb")
    await turn()
    process.tell(Kind.CALL_CANCEL, 1)
    assert process.services.closed == ["a"]
    assert process.said == [(Kind.CALL_END, 1)]


@pytest.mark.contract("PY-15")
async def test_call_that_is_stopped_is_read_to_its_end() -> None:
    process = Process()
    process.call("a", "many", decoupled=True)
    stream, told = process.services.streams["a"], list[ResponseStream]()
    stream.connect(lambda: None, on_stop=told.append)
    process.tell(Kind.CALL_STOP, 1)
    assert told == [stream]
    stream.send(response(1))
    stream.fail(RequestCancelledError())
    await turn()
    assert process.numbers == [1]
    assert process.said[-1] == (Kind.CALL_ERROR, (1, "CANCELLED", "request was cancelled"))


@pytest.mark.contract("PY-15")
async def test_call_in_a_queue_that_is_stopped_ends_with_the_error() -> None:
    process = Process()
    process.call("a", "many", decoupled=True)
    process.tell(Kind.CALL_STOP, 1)
    process.tell(Kind.CALL_STOP, 1)
    await turn()
    assert process.services.closed == ["a"]
    assert process.said == [(Kind.CALL_ERROR, (1, "CANCELLED", "request was cancelled"))]


async def test_end_of_the_process_cancels_everything() -> None:
    process = Process()
    process.call("a")
    process.call("bb")
    process.tell(Kind.CONTROL, (7, "wait", []))
    await turn()
    process.calls.close()
    process.services.gate.set()
    await turn()
    assert sorted(process.services.closed) == ["a", "bb"]
    assert process.heard(Kind.CONTROLLED) == []


async def test_metrics_belong_to_one_process_until_its_end() -> None:
    """Another process of the same instance is another owner."""
    processes = Process(pid=1), Process(pid=2)
    for process in processes:
        process.tell(Kind.METRIC, (0, "add", [1]))
        process.calls.close()
    owners = [process.services.owners for process in processes]
    assert owners == [process.services.over for process in processes]
    assert owners[0] != owners[1]


async def test_word_about_a_call_that_is_over_is_ignored() -> None:
    process = Process()
    process.tell(Kind.CALL_CANCEL, 9)
    process.tell(Kind.CALL_STOP, 9)
    process.tell(Kind.CALL_TAKEN, (9, 1))
    assert process.said == []


# -- control --------------------------------------------------------------------------------------


async def test_control_is_answered() -> None:
    process = Process()
    process.tell(Kind.CONTROL, (7, "load", ["m"]))
    await turn()
    assert process.said == [(Kind.CONTROLLED, (7, ["load", "m"], None))]


async def test_metric_is_answered() -> None:
    process = Process()
    process.tell(Kind.METRIC, (7, "add", [1]))
    assert process.said == [(Kind.CONTROLLED, (7, ["add", 1], None))]


@pytest.mark.parametrize(
    ("kind", "text"),
    [(Kind.CONTROL, "not that"), (Kind.METRIC, "ZeroDivisionError: no metric")],
)
async def test_what_went_wrong_is_told(kind: Kind, text: str) -> None:
    process = Process()
    process.tell(kind, (7, "fail", []))
    await turn()
    ((number, value, problem),) = process.heard(Kind.CONTROLLED)
    assert (number, value) == (7, None)
    assert problem.endswith(text)


@pytest.mark.parametrize("operation", ["add", "fail"])
async def test_metric_without_a_number_wants_no_answer(operation: str) -> None:
    process = Process()
    process.tell(Kind.METRIC, (0, operation, [1]))
    assert process.said == []
