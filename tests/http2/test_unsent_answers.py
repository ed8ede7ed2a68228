"""Peers who make us say much and read none of it."""

from __future__ import annotations

import pytest

from http2.peer import Server, error_of, opened, request, resets_of
from penstock.http2 import frames
from penstock.http2.frames import ErrorCode, FrameType, Limits

pytestmark = pytest.mark.interpreted("its streams derive from a class that would be compiled")


def test_peer_that_reads_no_answers_is_left() -> None:
    server = opened(Limits(idle_burst=1 << 30, max_unsent_control=10_000))
    server.connection.send_buffer.paused = True
    for _ in range(100):
        server.receive(frames.ping(b"12345678") * 10)
    assert server.connection.closing


def close_to_the_bound() -> Server:
    """A server with a call, whose client reads nothing, so that no more may be answered."""
    server = opened(Limits(max_unsent_control=990))
    server.receive(request(1, ends=False))
    server.said()
    server.connection.send_buffer.paused = True
    server.receive(frames.ping(b"12345678") * 58)
    return server


def test_end_of_a_response_is_no_answer_that_piles_up() -> None:
    """Nor may it fail: it goes out when the socket, a timer or a method says so."""
    server = close_to_the_bound()
    server.connection.send_buffer.finish(server.opened[1], b"\x88")
    server.connection.send_buffer.paused = False
    server.connection.send_buffer.pump()
    server.write()
    assert resets_of(server) == [(1, ErrorCode.NO_ERROR)]
    assert not server.connection.streams


def test_final_goaway_does_not_count_as_an_unsent_reply() -> None:
    server = close_to_the_bound()
    server.connection.drain()
    server.connection.finish_draining()
    server.receive(frames.frame(FrameType.PING, 0, 0, b"short"))
    server.connection.send_buffer.paused = False
    server.write()
    assert error_of(server) is ErrorCode.FRAME_SIZE_ERROR
