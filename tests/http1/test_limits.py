"""The limits of a connection, as decisions."""

from __future__ import annotations

from math import inf

import pytest

from penstock.http1.limits import FarewellClock, HeadSize, HttpLimits, ReceiveClock, SendClock

_LIMITS = HttpLimits(opening=20.0, body_period=30.0, body_part=100, idle=90.0)


def _clock() -> ReceiveClock:
    return ReceiveClock(_LIMITS, 0.0)


def _after_an_answer(now: float) -> ReceiveClock:
    """The clock of a connection that has served once."""
    clock = _clock()
    clock.bytes_received(1.0)
    clock.head_completed(1.0)
    clock.request_completed(1.0)
    clock.answered(now)
    return clock


def test_first_head_has_its_time_from_the_connection() -> None:
    clock = _clock()
    assert clock.due == 20.0
    clock.bytes_received(15.0)
    assert not clock.expired(19.9, reading=True)
    assert clock.expired(20.0, reading=True)


def test_request_begins_with_its_first_byte() -> None:
    begun = _clock()
    begun.bytes_received(1.0)
    assert (_clock().in_request, begun.in_request) == (False, True)


def test_later_head_has_its_time_from_its_first_byte() -> None:
    clock = _after_an_answer(5.0)
    clock.bytes_received(50.0)
    clock.bytes_received(60.0)
    assert clock.due == 70.0


def test_head_that_comes_with_the_request_before_it_has_its_time() -> None:
    clock = _clock()
    clock.bytes_received(1.0)
    clock.head_completed(1.0)
    clock.request_completed(1.0)
    clock.head_begun(1.0)
    clock.answered(2.0)
    assert (clock.in_request, clock.due) == (True, 21.0)


def test_idle_time_runs_from_the_answer() -> None:
    assert _after_an_answer(5.0).due == 95.0


def test_clock_never_expires_while_the_server_answers() -> None:
    clock = _clock()
    clock.bytes_received(1.0)
    clock.head_completed(1.0)
    clock.request_completed(1.0)
    assert clock.due == inf
    assert not clock.expired(1e9, reading=True)


def test_idle_time_runs_from_the_end_of_a_body_that_comes_after_the_answer() -> None:
    clock = _clock()
    clock.bytes_received(1.0)
    clock.head_completed(1.0)
    clock.answered(2.0)
    clock.request_completed(10.0)
    assert clock.due == 100.0


@pytest.mark.parametrize(("received", "late"), [(0, True), (99, True), (100, False)])
def test_body_must_go_on(received: int, late: bool) -> None:
    clock = _clock()
    clock.head_completed(1.0)
    clock.body_received(received)
    assert clock.expired(31.0, reading=True) is late


def test_each_period_of_a_body_counts_by_itself() -> None:
    clock = _clock()
    clock.head_completed(0.0)
    clock.body_received(1000)
    assert not clock.expired(30.0, reading=True)
    assert clock.due == 60.0
    assert clock.expired(60.0, reading=True)


def test_client_is_not_blamed_while_the_server_does_not_read() -> None:
    clock = _clock()
    clock.head_completed(0.0)
    assert not clock.expired(30.0, reading=False)
    assert clock.expired(60.0, reading=True)


def test_client_is_not_blamed_where_the_server_was_held_up() -> None:
    """What it has sent may not be read yet; there is a second for that."""
    clock = _clock()
    clock.head_completed(0.0)
    assert not clock.expired(52.0, reading=True)
    assert clock.due == 53.0
    assert clock.expired(53.0, reading=True)
    assert clock.expired(90.0, reading=True)  # one that is always late does not wait for ever


def test_client_that_takes_nothing_is_stalled_after_its_time() -> None:
    clock = SendClock(60.0, 0.0, (1000, 50))
    assert not clock.stalled(59.0, (1000, 50))
    assert clock.stalled(60.0, (1000, 50))


@pytest.mark.parametrize("unsent", [(999, 50), (1000, 49), (1000, 51)])
def test_time_runs_from_the_last_bytes_that_went_on_their_way(unsent: tuple[int, int]) -> None:
    clock = SendClock(60.0, 0.0, (1000, 50))
    assert not clock.stalled(59.0, unsent)
    assert not clock.stalled(118.0, unsent)
    assert clock.stalled(119.0, unsent)


@pytest.mark.parametrize("received", [0, 20, (64 << 10) - 1])
def test_refused_client_that_sends_little_has_one_period(received: int) -> None:
    clock = FarewellClock()
    clock.bytes_received(received)
    assert clock.expired()


def test_refused_client_that_sends_much_has_five_periods() -> None:
    clock = FarewellClock()
    ends = []
    for _ in range(5):
        clock.bytes_received(64 << 10)
        ends.append(clock.expired())
    assert ends == [False, False, False, False, True]


def test_refused_client_that_has_sent_all_has_one_more_period() -> None:
    clock = FarewellClock()
    clock.bytes_received(1 << 20)
    assert [clock.expired(), clock.expired()] == [False, True]


def test_head_may_be_as_long_as_the_limit() -> None:
    head = HeadSize(HttpLimits(max_head_size=100))
    assert head.feed(60) == 60
    assert head.feed(60) == 40
    assert head.feed(20) == 0


def test_body_does_not_count_as_head() -> None:
    head = HeadSize(HttpLimits(max_head_size=100))
    assert head.feed(90) == 90
    head.complete()
    for _ in range(3):
        assert head.feed(1000) == 1000
        head.body_received()
    head.begin()
    assert head.feed(1000) == 100


def test_trailers_and_marks_of_chunks_count_until_there_is_more_body() -> None:
    head = HeadSize(HttpLimits(max_head_size=100))
    head.complete()
    assert head.feed(90) == 90
    head.body_received()
    assert head.feed(90) == 90
    assert head.feed(90) == 90
    assert head.feed(90) == 0


def test_number_and_size_of_fields_are_limited() -> None:
    head = HeadSize(HttpLimits(max_fields=2, max_head_size=100))
    assert head.add_field(10)
    assert head.add_field(10)
    assert not head.add_field(10)
    head.begin()
    assert head.add_field(100)
    assert not head.add_field(1)


def test_chunks_of_a_body_are_counted() -> None:
    """The one that ends it is empty, and does not count."""
    size = HeadSize(HttpLimits(max_chunks=2))
    assert [size.add_chunk() for _ in range(4)] == [True, True, True, False]
    size.begin()
    assert size.add_chunk()
