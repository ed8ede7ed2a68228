"""Batches and requests that a model process was sent: room for more, numbers, and its death."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import in_virtual_time, make_inference, make_response, mark, turns
from penstock.core.buffer import Buffer
from penstock.core.call_chain import CallingInstance, NestedCall, Wait
from penstock.core.errors import InternalError, RequestCancelledError, UnavailableError
from penstock.core.request import InferenceRequest
from penstock.hosting.link.arena import Arena, create
from penstock.hosting.link.frames import FrameReader
from penstock.hosting.link.link import Link
from penstock.hosting.link.memory import SharedMemory
from penstock.hosting.link.messages import Kind, pack_response
from penstock.hosting.parent.in_flight import InFlight
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Duration, Statistics

QUICK, SLOW = 100_000, 10_000_000
"""Nanoseconds of executions that do, and do not, let the next batch be sent early."""
NOTHING = memoryview(b"")


def nothing() -> None:
    pass


class Peer:
    """The process on the other end of a link: what it reads, and which batch it began last."""

    def __init__(self, begun: int = 0) -> None:
        inputs, outputs = create(1 << 16), create(1 << 16)
        Arena(outputs).begin(begun)
        self.memory = SharedMemory(out=inputs, into=outputs)
        self.link = Link({}, nothing)
        self.link.connection_made(cast(asyncio.BaseTransport, self))
        self._frames = FrameReader()
        self._messages: list[tuple[int, Any]] = []

    def writelines(self, parts: Sequence[Buffer]) -> None:
        """As of a transport."""
        data = b"".join(parts)
        self._messages += [(kind, header) for kind, header, _ in self._frames.feed(data)]

    @property
    def messages(self) -> list[tuple[int, Any]]:
        """Kinds and headers of the messages that were sent."""
        self.link.flush()
        return self._messages

    @property
    def numbers(self) -> list[int]:
        """Numbers of the requests that were sent, in their order."""
        batches = [header[1] for kind, header in self.messages if kind == Kind.EXECUTE]
        return [request[0] for batch in batches for request in batch]


def in_flight(
    peer: Peer | None = None,
    ahead: int = 1,
    limit: float | None = None,
    on_late: Callable[[], None] = lambda: None,
    *,
    serial: bool = True,
) -> InFlight:
    """Attached to a process."""
    some = InFlight(serial=serial, ahead=ahead, limit=limit)
    attach(some, peer or Peer(), on_late)
    return some


def attach(some: InFlight, peer: Peer, on_late: Callable[[], None] = lambda: None) -> None:
    """A process has started."""
    some.attach(peer.link, peer.memory, on_late)


def batch(rows: int = 1, statistics: Statistics | None = None) -> list[Inference]:
    inference = Inference(InferenceRequest("m"), rows, statistics or Statistics())
    inference.started(1)
    return [inference]


def done(some: InFlight, number: int, duration: int, waited: int = 0) -> None:
    """The process has executed a batch within so many nanoseconds."""
    some.on_done((number, 0, 0, duration, waited), NOTHING)


def done_before(some: InFlight) -> None:
    """A quick execution, so that the next batches may be sent ahead."""
    some.send([make_inference()], nothing)
    done(some, 1, QUICK)


def answer(some: InFlight, number: int, *, final: bool) -> None:
    header, _ = pack_response(make_response(1, final=final))
    some.on_response((number, header), NOTHING)


class Room:
    """How often the scheduler was called back for another batch."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


async def test_one_batch_at_a_time() -> None:
    some, room = in_flight(), Room()
    some.send(batch(), room)
    assert room.count == 0
    done(some, 1, SLOW)
    assert room.count == 1


async def test_a_backend_that_is_not_serial_always_has_room() -> None:
    some, room = in_flight(serial=False), Room()
    for _ in range(3):
        some.send(batch(), room)
    assert room.count == 3


async def test_quick_executions_let_the_next_batch_be_sent_early() -> None:
    some, room = in_flight(ahead=2), Room()
    some.send(batch(), room)
    done(some, 1, QUICK)
    some.send(batch(), room)
    assert room.count == 2
    some.send(batch(), room)
    assert room.count == 2


async def test_time_waited_for_other_models_is_not_time_of_the_execution() -> None:
    some, room = in_flight(ahead=2), Room()
    some.send(batch(), room)
    done(some, 1, SLOW + QUICK, waited=SLOW)
    some.send(batch(), room)
    assert room.count == 2


async def test_slow_execution_closes_the_window() -> None:
    some, room = in_flight(ahead=2), Room()
    some.send(batch(), room)
    done(some, 1, QUICK)
    some.send(batch(), nothing)
    done(some, 2, SLOW)
    some.send(batch(), room)
    assert room.count == 1


async def test_callers_do_not_wait_for_an_instance_that_has_executed() -> None:
    """A thread of the model may answer later."""
    some, room, call = in_flight(), Room(), NestedCall(CallingInstance("a_0"), blocking=True)
    (inference,) = requests = batch()
    inference.wait = Wait(call, list)
    some.send(requests, room)
    assert call.waits == {inference.wait}
    done(some, 1, 0)
    assert call.waits == set()


@in_virtual_time
async def test_execution_that_takes_too_long_is_reported_once() -> None:
    late: list[bool] = []
    some = in_flight(limit=0.02, on_late=lambda: late.append(True))
    some.send(batch(), nothing)
    await asyncio.sleep(0.1)
    assert late == [True]


@in_virtual_time
async def test_time_of_an_execution_begins_when_the_one_before_is_done() -> None:
    late: list[bool] = []
    some = in_flight(ahead=2, limit=0.1, on_late=lambda: late.append(True))
    some.send(batch(), nothing)
    some.send(batch(), nothing)
    await asyncio.sleep(0.06)
    done(some, 1, QUICK)
    await asyncio.sleep(0.06)
    assert late == []
    done(some, 2, QUICK)
    await asyncio.sleep(0.12)
    assert late == []


async def test_executions_are_counted_with_their_times() -> None:
    statistics = Statistics()
    some = in_flight()
    some.send(batch(3, statistics) + batch(2, statistics), nothing)
    some.on_done((1, 1000, 1100, 1500, 0), NOTHING)
    assert statistics.execution_count == 1
    counted = statistics.batches[5]
    assert (counted.compute_input.ns, counted.compute_infer.ns) == (100, 400)


@pytest.mark.contract("DC-05")
@pytest.mark.parametrize("serial", [True, False])
async def test_times_of_a_decoupled_request_are_those_of_its_execution(serial: bool) -> None:
    """Its responses may follow much later."""
    statistics = Statistics(decoupled=True)
    some = in_flight(serial=serial)
    some.send(batch(1, statistics), nothing)
    some.on_done((1, 1000, 1100, 1500, 0), NOTHING)
    answer(some, 1, final=True)
    counted = statistics.batches[1]
    assert (statistics.compute_input, statistics.compute_infer, statistics.compute_output) == (
        counted.compute_input,
        counted.compute_infer,
        counted.compute_output,
    )
    assert statistics.compute_infer == Duration(1, 400)


async def test_unknown_batch_changes_nothing() -> None:
    """Its process was killed while the message was read."""
    some, room = in_flight(), Room()
    some.send(batch(), room)
    done(some, 9, QUICK)
    assert some.executing
    assert room.count == 0


# -- the death of the process -----------------------------------------------------------------


async def test_death_of_the_process_makes_room() -> None:
    some, room = in_flight(), Room()
    some.send(batch(), room)
    some.lose(UnavailableError("killed"))
    assert room.count == 1
    assert not some.executing


@given(st.integers(0, 6), st.integers(0, 6))
def test_only_batches_that_were_not_begun_are_resent_but_never_the_first(
    executed: int, begun: int
) -> None:
    @in_virtual_time
    async def play() -> None:
        some, then = in_flight(Peer(begun), ahead=16), Peer()
        batches = {number: batch() for number in range(1, 7)}
        for each in batches.values():
            some.send(each, nothing)
        for number in range(1, executed + 1):
            done(some, number, QUICK)
        kept = [number for number in batches if number > max(begun, executed + 1)]
        some.lose(UnavailableError("killed"))
        attach(some, then)
        some.resend()
        assert len(then.numbers) == len(kept)
        alive = [number for number, (inference,) in batches.items() if not inference.abandoned]
        assert alive == kept

    play()


async def test_batches_that_overlap_fail_with_the_process() -> None:
    some, batches = in_flight(serial=False), [batch(), batch()]
    for each in batches:
        some.send(each, nothing)
    some.lose(UnavailableError("killed"))
    assert [inference.abandoned for each in batches for inference in each] == [True, True]


async def test_numbers_are_not_used_again_by_the_next_process() -> None:
    """A message of the dead process that is still read must find nothing."""
    some, then = in_flight(ahead=2), Peer()
    for _ in range(3):
        some.send(batch(), nothing)
    some.lose(UnavailableError("killed"))
    attach(some, then)
    some.resend()
    assert then.numbers == [4, 5]


async def test_cancelled_requests_are_not_resent() -> None:
    some, then, kept = in_flight(ahead=2), Peer(), batch()
    some.send(batch(), nothing)
    some.send(kept, nothing)
    some.lose(UnavailableError("killed"))
    kept[0].stream.close()
    attach(some, then)
    some.resend()
    assert then.messages == []


async def test_end_of_the_instance_fails_batches_that_were_kept() -> None:
    some, kept = in_flight(ahead=2), batch()
    some.send(batch(), nothing)
    some.send(kept, nothing)
    some.lose(UnavailableError("killed"))
    some.fail_all(UnavailableError("unloaded"))
    assert str(kept[0].stream.error) == "unloaded"


async def test_a_kept_batch_that_cannot_be_resent_fails_alone() -> None:
    some, then = in_flight(ahead=3), Peer()
    batches = [batch(), batch(), batch()]
    for each in batches:
        some.send(each, nothing)
    some.lose(UnavailableError("killed"))
    batches[1][0].request = InferenceRequest("m", parameters={"p": cast(str, object())})
    attach(some, then)
    some.resend()
    assert str(batches[1][0].stream.error).startswith("parameter 'p' must be")
    assert then.numbers == [5]


async def test_kept_requests_count_as_in_flight() -> None:
    some, kept = in_flight(ahead=2), batch()
    some.send(batch(), nothing)
    some.send(kept, nothing)
    some.lose(UnavailableError("killed"))
    assert list(some.requests) == kept


# -- requests ---------------------------------------------------------------------------------


@pytest.mark.contract("PY-28")
async def test_a_rescheduled_request_keeps_its_number() -> None:
    peer = Peer()
    some, inference = in_flight(peer), make_inference()
    some.send([inference], nothing)
    some.on_reschedule(1, NOTHING)
    assert inference.rescheduled
    some.send([inference], nothing)
    some.send([make_inference()], nothing)
    assert peer.numbers == [1, 1, 2]
    answer(some, 1, final=True)
    assert inference.abandoned


async def test_cancellation_of_a_rescheduled_request_is_sent() -> None:
    peer = Peer()
    some, inference = in_flight(peer), make_inference()
    some.send([inference], nothing)
    some.on_reschedule(1, NOTHING)
    inference.stream.close()
    await turns()
    assert peer.messages[1:] == [(Kind.CANCEL, 1)]
    answer(some, 1, final=True)


@pytest.mark.contract("PY-15")
@pytest.mark.parametrize("again", [False, True])
async def test_model_is_told_that_no_more_is_wanted_and_goes_on(again: bool) -> None:
    """Also where the request has been rescheduled meanwhile."""
    peer = Peer()
    some, inference = in_flight(peer), make_inference()
    some.send([inference], nothing)
    if again:
        some.on_reschedule(1, NOTHING)
    inference.stream.stop()
    assert peer.messages[1:] == [(Kind.STOP, 1)]
    answer(some, 1, final=False)
    some.on_error((1, "CANCELLED", "told"), NOTHING)
    assert mark(await anext(inference.stream)) == 1
    with pytest.raises(RequestCancelledError, match="told"):
        await anext(inference.stream)


@pytest.mark.contract("PY-15")
async def test_request_ahead_of_its_turn_ends_when_no_more_is_wanted() -> None:
    peer = Peer()
    some, begun, ahead = in_flight(peer, ahead=4), make_inference(), make_inference()
    done_before(some)
    some.send([begun], nothing)
    some.send([ahead], nothing)
    ahead.stream.stop()
    assert isinstance(ahead.stream.error, RequestCancelledError)
    assert peer.messages[-1] == (Kind.CANCEL, peer.numbers[-1])
    assert not begun.abandoned


async def test_request_kept_for_the_next_process_ends_when_no_more_is_wanted() -> None:
    some, kept = in_flight(ahead=4), make_inference()
    done_before(some)
    some.send([make_inference()], nothing)
    some.send([kept], nothing)
    some.lose(UnavailableError("gone"))
    assert not kept.abandoned
    kept.stream.stop()
    assert isinstance(kept.stream.error, RequestCancelledError)


async def test_a_cancelled_request_is_not_rescheduled() -> None:
    some, inference = in_flight(), make_inference()
    some.send([inference], nothing)
    inference.stream.close()
    some.on_reschedule(1, NOTHING)
    assert not inference.rescheduled


async def test_a_rescheduled_request_fails_with_the_process() -> None:
    peer = Peer()
    some, inference = in_flight(peer), make_inference()
    some.send([inference], nothing)
    some.on_reschedule(1, NOTHING)
    some.lose(UnavailableError("killed"))
    assert inference.stream.error is not None


async def test_a_batch_that_cannot_be_packed_leaves_nothing_in_flight() -> None:
    some, peer = in_flight(), Peer()
    attach(some, peer)
    unfit = Inference(InferenceRequest("m", parameters={"p": cast(str, object())}), 1, Statistics())
    with pytest.raises(InternalError, match="parameter 'p' must be"):
        some.send([*batch(), unfit], nothing)
    assert list(some.requests) == []
    assert not some.executing
    assert peer.messages == []
