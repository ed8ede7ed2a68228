"""The last descriptors are not for connections."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.system.fd_reserve import DescriptorReserve, spare_from

_LOW = 500
"""The least number of connections that are asked: those below may be open here, and be readable."""


class Connection(asyncio.BaseTransport):
    """A transport whose socket has this number, or which has none."""

    def __init__(self, number: int | None) -> None:
        super().__init__({})
        self._number = number

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        number = self._number
        return None if number is None else SimpleNamespace(fileno=lambda: number)


@pytest.fixture
def limit() -> Iterator[int]:
    """A limit of 1,024, which leaves 64 in reserve."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    assert max(map(int, os.listdir("/proc/self/fd"))) < _LOW
    yield 1024
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("number", "stays"), [(5, True), (959, True), (960, False), (1023, False), (None, True)]
)
def test_connections_leave_the_last_numbers(limit: int, number: int | None, stays: bool) -> None:
    assert DescriptorReserve().admits(Connection(number)) is stays


class Asked:
    """A connection of a port, which says since when it is idle."""

    def __init__(self, reserve: DescriptorReserve, number: int, since: float | None = 0.0) -> None:
        self.transport = Connection(number)
        self.idle_since = since
        self.closed = not reserve.admits(self.transport, self)

    def close_idle(self) -> None:
        self.closed = True


def test_longest_idle_makes_room(limit: int) -> None:
    reserve = DescriptorReserve()
    asked = [
        Asked(reserve, _LOW + index, since) for index, since in enumerate((2.0, None, 1.0, 3.0))
    ]
    closed = []
    for number in range(960, 963):
        assert reserve.admits(Connection(number))
        closed.append([index for index, each in enumerate(asked) if each.closed])
    assert closed == [[2], [0, 2], [0, 2, 3]]
    assert not reserve.admits(Connection(970))


def test_those_that_are_busy_do_not_hide_those_that_are_idle(limit: int) -> None:
    """Only some are asked each time."""
    reserve = DescriptorReserve()
    for number in range(900):
        Asked(reserve, number, None)
    idle = Asked(reserve, 900, 0.0)
    assert [reserve.admits(Connection(960)) for _ in range(2)] == [False, True]
    assert idle.closed


def test_a_connection_that_has_left_is_not_asked(limit: int) -> None:
    reserve = DescriptorReserve()
    gone = Asked(reserve, _LOW, 0.0)
    reserve.released(gone.transport)
    assert not reserve.admits(Connection(960))


def test_idle_connection_makes_room_once(limit: int) -> None:
    reserve = DescriptorReserve()
    idle = Asked(reserve, _LOW)
    assert reserve.admits(Connection(960))
    assert not reserve.admits(Connection(961))
    assert idle.closed


def test_number_that_came_free_is_no_room_while_the_reserve_is_used(limit: int) -> None:
    """However many come and go, there are never more than when room ran out."""
    reserve = DescriptorReserve()
    waiting = [Asked(reserve, number) for number in range(_LOW, _LOW + 10)]
    waiting += [Asked(reserve, number) for number in (960, 961)]
    waiting += [Asked(reserve, number) for number in range(_LOW, _LOW + 3)]
    assert sum(not idle.closed for idle in waiting) == 10


def test_there_is_room_again_when_the_reserve_is_free(limit: int) -> None:
    reserve = DescriptorReserve()
    waiting = [Asked(reserve, number) for number in range(_LOW, _LOW + 3)]
    last = Asked(reserve, 960)
    last.idle_since = None
    reserve.released(last.transport)
    waiting += [Asked(reserve, number) for number in (_LOW, _LOW + 3, _LOW + 4)]
    assert [idle.closed for idle in waiting] == [True, *[False] * 5]


def test_there_is_room_again_when_the_limit_is_raised(limit: int) -> None:
    reserve = DescriptorReserve()
    waiting = [Asked(reserve, number) for number in range(_LOW, _LOW + 3)]
    assert reserve.admits(Connection(960))
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (1100, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    waiting += [Asked(reserve, number) for number in (_LOW + 3, _LOW + 4)]
    assert [idle.closed for idle in waiting] == [True, *[False] * 4]


def test_a_request_that_is_not_read_yet_is_no_idleness(limit: int) -> None:
    """The loop may be slow: a client that has asked would be reset."""
    reserve = DescriptorReserve()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"GET")
        asking, idle = Asked(reserve, ours.fileno(), 0.0), Asked(reserve, 900, 1.0)
        assert reserve.admits(Connection(960))
        assert (asking.closed, idle.closed) == (False, True)


def test_of_few_few_are_kept() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        assert spare_from() == 150
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_flood_is_one_line_of_the_log(limit: int, caplog: pytest.LogCaptureFixture) -> None:
    reserve = DescriptorReserve()
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            reserve.admits(Connection(limit - 1))
    (line,) = caplog.messages
    assert line.startswith("Connections are refused, 1 so far: of 1024 file descriptors")
