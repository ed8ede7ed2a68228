"""`StreamWriter`: the order in which responses of one `ModelStreamInfer` call are written."""

from __future__ import annotations

from functools import partial

import pytest

from penstock.core.errors import DeadlineExceededError, InferenceError, InternalError, NotFoundError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc import stream_writer
from rpc.manual import ask, number
from rpc.stepped_stream import SteppedStream


def _large(id: str, size: int) -> pb.ModelInferRequest:
    """A request with so many bytes."""
    request = ask("many", id)
    request.inputs.add(name="IN", datatype="UINT8", shape=[size])
    request.raw_input_contents.append(bytes(size))
    return request


def _unfit() -> InferenceResponse:
    """A response that cannot be serialized, through a fault of the server."""
    return InferenceResponse({"OUT": Tensor(DataType.FP32, (1,), None)})


def _full(call: SteppedStream) -> bool:
    return call.answers.full


# -- turns -----------------------------------------------------------------------------------------


def test_models_take_turns() -> None:
    call = SteppedStream()
    call.ask(*(ask("many", f"flood{n}") for n in range(9)), ask("many2", "calm"))
    for n in range(9):
        call.answer(f"flood{n}", number(n))
    call.answer("calm", number(1), number(2))
    call.write_all()
    ids = [id for id, _ in call.wire.received]
    assert [at for at, id in enumerate(ids) if id == "calm"] == [1, 3]


def test_requests_of_one_model_take_turns() -> None:
    call = SteppedStream()
    call.ask(ask("many", "a"), ask("many", "b"))
    for id in "ab":
        call.answer(id, number(1), number(2))
    call.write_all()
    assert [id for id, _ in call.wire.received] == ["a", "b", "a", "b"]


def test_response_behind_others_is_not_written_at_once() -> None:
    call = SteppedStream(at_once=True)
    call.ask(ask("many", "a"), ask("many", "b"))
    call.stall()
    call.answer("a", number(1), number(2))
    call.make_room()
    call.answer("b", number(3))
    assert call.wire.received == [("a", 1)]
    call.write_all()
    assert call.wire.received == [("a", 1), ("a", 2), ("b", 3)]


def test_a_transport_without_room_is_left_alone_until_it_has_some() -> None:
    call = SteppedStream(at_once=True)
    call.ask(ask("many", "a"))
    call.stall()
    call.answer("a", number(1), number(2), number(3))
    assert (call.wire.received, call.answers.blocked) == ([("a", 1)], True)
    call.make_room()
    assert not call.answers.blocked


def test_a_transport_that_is_written_to_by_a_task_is_never_blocked() -> None:
    call = SteppedStream()
    call.ask(ask("many", "a"))
    call.stall()
    call.answer("a", number(1))
    call.write_all()
    assert not call.answers.blocked


# -- how much --------------------------------------------------------------------------------------


def test_many_requests_crowd_a_stream_until_one_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_writer, "MOST_OPEN", 3)
    call = SteppedStream(at_once=True)
    call.ask(ask("many", "a"), ask("once", "b"))
    assert not _full(call)
    call.ask(ask("many", "c"))
    assert _full(call)
    call.answer("c", number(1, final=True))
    assert not _full(call)


def test_large_requests_crowd_a_stream_until_they_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_writer, "MOST_BYTES", 1000)
    call = SteppedStream(at_once=True)
    call.ask(_large("a", 600), _large("b", 399))
    assert not _full(call)
    call.ask(_large("c", 1))
    assert _full(call)
    call.answer("b", number(1, final=True))
    assert not _full(call)
    call.ask(_large("d", 398))
    assert not _full(call)
    call.ask(_large("e", 1))
    assert _full(call)


# -- who waits -------------------------------------------------------------------------------------


async def test_the_reader_hears_of_an_answer_that_is_complete() -> None:
    call = SteppedStream(at_once=True)
    call.ask(ask("many", "a"))
    room = call.answers.wait_for_room()
    call.answer("a", number(1))
    assert not room.done()
    call.answer("a", number(2, final=True))
    assert room.done()


async def test_writer_is_woken_for_a_queued_answer() -> None:
    call = SteppedStream()
    call.ask(ask("many", "a"))
    message = call.answers.wait_for_message()
    assert not message.done()
    call.answer("a", number(1))
    assert message.done()


async def test_writer_is_not_woken_for_a_response_written_at_once() -> None:
    call = SteppedStream(at_once=True)
    call.ask(ask("many", "a"))
    message = call.answers.wait_for_message()
    call.answer("a", number(1))
    assert (call.wire.received, message.done()) == ([("a", 1)], False)


async def test_the_writer_hears_that_there_is_no_room() -> None:
    call = SteppedStream(at_once=True)
    call.ask(ask("many", "a"))
    message = call.answers.wait_for_message()
    call.stall()
    call.answer("a", number(1))
    assert message.done()


async def test_the_writer_hears_that_all_is_answered() -> None:
    """Which may be what it waits for."""
    call = SteppedStream(at_once=True)
    call.ask(ask("many", "a"), ask("many", "b"))
    message = call.answers.wait_for_message()
    call.answer("a", number(1, final=True))
    assert not message.done()
    call.answer("b", number(2, final=True))
    assert message.done()


async def test_cancelled_waiter_is_not_woken() -> None:
    call = SteppedStream(at_once=True)
    call.ask(ask("many", "a"))
    for waiting in (call.answers.wait_for_room(), call.answers.wait_for_message()):
        waiting.cancel()
    call.answer("a", number(1, final=True))
    assert call.wire.received == [("a", 1)]


# -- what ends the call ----------------------------------------------------------------------------


@pytest.mark.contract("GP-19")
def test_the_first_error_ends_a_call_that_fails_fast() -> None:
    call = SteppedStream(metadata={"triton_grpc_error": "true"})
    call.ask(ask("once", "a"))
    call.server.streams["a"].fail(NotFoundError("not there"))
    with pytest.raises(NotFoundError):
        call.write_next()
    assert call.wire.received == []


@pytest.mark.parametrize(
    "metadata", [{}, {"triton_grpc_error": "false"}, {"triton_grpc_error": "1"}]
)
def test_error_is_sent_in_band_unless_the_client_opted_out(metadata: dict[str, str]) -> None:
    call = SteppedStream(at_once=True, metadata=metadata)
    call.ask(ask("strict", "a"))
    assert call.wire.received == [("a", "not like this")]


@pytest.mark.parametrize(
    ("deadline", "error", "ends"),
    [
        (1.0, DeadlineExceededError("late"), True),
        (None, DeadlineExceededError("late"), False),
        (1.0, InternalError("broken"), False),
    ],
)
def test_a_call_ends_with_its_own_time_but_not_with_that_of_a_request(
    deadline: float | None, error: InferenceError, ends: bool
) -> None:
    """A model that calls others may answer with the end of their time."""
    call = SteppedStream(at_once=True, deadline=deadline)
    call.ask(ask("many", "a"))
    call.server.streams["a"].fail(error)
    assert call.answers.failure is (error if ends else None)
    assert call.wire.received == ([] if ends else [("a", error.message)])


async def test_server_fault_ends_the_call_but_not_the_sender_of_the_response() -> None:
    call = SteppedStream(at_once=True)
    call.ask(ask("many", "a"), ask("many", "b"))
    message = call.answers.wait_for_message()
    call.answer("a", _unfit())
    assert call.answers.failure is not None
    assert message.done()


def test_nothing_is_written_after_a_failure() -> None:
    call = SteppedStream(at_once=True)
    call.ask(ask("many", "a"), ask("many", "b"))
    call.answer("a", _unfit(), number(1))
    call.answer("b", number(2))
    assert (call.wire.received, call.answers.queued) == ([], False)


# -- when the client leaves ------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [False, True])
def test_answer_caused_by_the_end_of_another_ends_nothing_else(at_once: bool) -> None:
    """The next in a queue may be answered as soon as one has left it."""
    call = SteppedStream(at_once=at_once)
    ids = [str(n) for n in range(20)]
    call.ask(*(ask("many", id) for id in ids))
    for id, other in zip(ids, reversed(ids), strict=True):
        call.server.on_closed[id] = partial(call.answer, other, number(1, final=True))
    call.answers.close()
    assert call.wire.received == []
    assert sorted(call.server.regions.released) == sorted(ids)
    assert all(stream.ended for stream in call.server.streams.values())


def test_response_sent_after_close_is_not_written() -> None:
    call = SteppedStream(at_once=True)
    call.ask(ask("many", "a"), ask("once", "b"))
    call.answers.close()
    call.answer("a", number(1))
    call.answer("b", number(2))
    assert call.wire.received == []
    assert sorted(call.server.closed) == ["a", "b"]
