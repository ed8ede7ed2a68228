"""What becomes of batches when the model process that was sent them dies."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from fakes import in_virtual_time
from hosting.parent.in_flight.peer import QUICK, Peer, Room, attach, batch, done, in_flight, nothing
from penstock.core.errors import UnavailableError
from penstock.core.request import InferenceRequest


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
