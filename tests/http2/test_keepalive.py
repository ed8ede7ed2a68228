"""Keepalive: when a connection is pinged, drained or closed; without a clock."""

from __future__ import annotations

from math import inf

import pytest

from http2.peer import error_of, opened, request
from penstock.http2 import frames
from penstock.http2.frames import ErrorCode
from penstock.http2.keepalive import ConnectionAges, ConnectionLifetime, LifetimeAction, PingStrikes

pytestmark = pytest.mark.interpreted("its streams derive from a class that would be compiled")


def lifetime(streams: int = 1, **ages: float | bool) -> ConnectionLifetime:
    """Of a connection that was opened at 0."""
    made = ConnectionLifetime(ConnectionAges(**ages), 0.0)  # type: ignore[arg-type]
    made.bytes_received(0.0, opened=True, in_block=False, streams=streams)
    return made


def steps(lifetime: ConnectionLifetime, now: float) -> list[LifetimeAction]:
    """Everything to do at a time."""
    found: list[LifetimeAction] = []
    while (step := lifetime.next_action(now)) is not LifetimeAction.NOTHING:
        found.append(step)
        if step is LifetimeAction.CLOSE:
            break
    return found


def test_silent_client_is_disconnected() -> None:
    silent = ConnectionLifetime(ConnectionAges(opening=20.0), 0.0)
    silent.bytes_received(10.0, opened=False, in_block=False, streams=0)
    assert steps(silent, 19.0) == []
    assert steps(silent, 20.0) == [LifetimeAction.CLOSE]


def test_header_block_has_to_end_in_time() -> None:
    slow = lifetime(opening=20.0)
    for now in (100.0, 110.0, 119.0):
        slow.bytes_received(now, opened=True, in_block=True, streams=1)
    assert steps(slow, 120.0) == [LifetimeAction.CLOSE]


def test_frame_that_is_cut_by_each_read_is_another_one_each_time() -> None:
    busy = lifetime(opening=20.0)
    for now in range(100, 200, 10):
        busy.bytes_received(float(now), opened=True, in_block=True, streams=1, anew=True)
    assert steps(busy, 200.0) == []
    assert steps(busy, 210.0) == [LifetimeAction.CLOSE]


@pytest.mark.contract("GT-06", "GT-07")
def test_silence_is_pinged_and_has_to_be_answered() -> None:
    quiet = lifetime(ping_after=60.0, ping_timeout=20.0)
    assert quiet.next_check(0.0) == 60.0
    assert steps(quiet, 59.0) == []
    assert steps(quiet, 60.0) == [LifetimeAction.PING]
    assert steps(quiet, 79.0) == []
    assert steps(quiet, 80.0) == [LifetimeAction.CLOSE]


def test_age_gives_its_grace_and_the_end_of_the_server_its_own() -> None:
    old, ending = lifetime(age=60.0, grace=3.0), lifetime(age=60.0, grace=3.0)
    assert steps(old, 60.0) == [LifetimeAction.DRAIN]
    ending.drain_started(10.0)
    assert LifetimeAction.CLOSE in steps(old, 63.0)
    assert LifetimeAction.CLOSE not in steps(ending, 63.0)


def test_anything_that_is_heard_is_an_answer() -> None:
    quiet = lifetime(ping_after=60.0, ping_timeout=20.0)
    assert steps(quiet, 60.0) == [LifetimeAction.PING]
    quiet.bytes_received(70.0, opened=True, in_block=False, streams=1)
    assert steps(quiet, 90.0) == []
    assert steps(quiet, 130.0) == [LifetimeAction.PING]


@pytest.mark.contract("GT-08")
@pytest.mark.parametrize(("wanted", "found"), [(False, []), (True, [LifetimeAction.PING])])
def test_connection_without_calls_is_pinged_if_that_is_asked_for(
    wanted: bool, found: list[LifetimeAction]
) -> None:
    quiet = lifetime(streams=0, ping_after=60.0, ping_without_calls=wanted)
    assert steps(quiet, 60.0) == found


@pytest.mark.contract("GT-12")
def test_old_connection_is_drained_and_closed_after_the_grace() -> None:
    old = lifetime(age=100.0, grace=30.0, drain_answer=5.0)
    assert old.next_check(0.0) == 100.0
    assert steps(old, 100.0) == [LifetimeAction.DRAIN]
    assert steps(old, 105.0) == [LifetimeAction.FINISH_DRAINING]
    assert steps(old, 129.0) == []
    assert steps(old, 130.0) == [LifetimeAction.CLOSE]


@pytest.mark.contract("GT-12")
def test_without_a_grace_calls_may_go_on_for_ever() -> None:
    old = lifetime(age=100.0)
    assert steps(old, 100.0) == [LifetimeAction.DRAIN]
    assert steps(old, 200.0) == [LifetimeAction.FINISH_DRAINING]
    assert steps(old, 1e9) == []


def test_idle_connection_is_drained() -> None:
    idle = lifetime(streams=0, idle=50.0)
    assert steps(idle, 49.0) == []
    assert steps(idle, 50.0) == [LifetimeAction.DRAIN]


def test_connection_with_calls_is_not_idle() -> None:
    busy = lifetime(streams=1, idle=50.0)
    assert steps(busy, 100.0) == []
    assert busy.next_check(100.0) == 150.0
    busy.streams_counted(120.0, 0)
    assert steps(busy, 169.0) == []
    assert steps(busy, 170.0) == [LifetimeAction.DRAIN]


def test_nothing_is_due_where_nothing_is_asked_for() -> None:
    assert lifetime().next_check(0.0) == inf


@pytest.mark.contract("GT-10", "GT-11")
def test_pings_in_too_short_a_time_are_counted() -> None:
    strikes = PingStrikes(interval=300.0, limit=2)
    assert [strikes.ping(now, 0, True) for now in (0.0, 1.0, 2.0, 3.0)] == [
        False,
        False,
        False,
        True,
    ]


@pytest.mark.contract("GT-09", "GT-10")
def test_pings_after_responses_are_no_offence() -> None:
    strikes = PingStrikes(interval=300.0, limit=2)
    assert not any(strikes.ping(now, int(now), True) for now in range(100))


def test_without_calls_the_interval_is_two_hours() -> None:
    strikes = PingStrikes(interval=1.0, limit=1, without_calls=False)
    assert [strikes.ping(now, 0, False) for now in (0.0, 7000.0, 14_000.0)] == [False, False, True]


@pytest.mark.contract("GT-11")
def test_one_ping_too_many_ends_the_connection_with_a_reason() -> None:
    server = opened(strikes=PingStrikes(interval=300.0, limit=2))
    server.receive(request(1, ends=False))
    server.said()
    for _ in range(4):
        server.receive(frames.ping(b"12345678"))
    assert b"too_many_pings" in server.written
    assert error_of(server) is ErrorCode.ENHANCE_YOUR_CALM
