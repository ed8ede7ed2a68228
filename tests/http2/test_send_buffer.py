"""Frames of responses in order, however windows and the socket come and go."""

from __future__ import annotations

import pytest

from penstock.http2.flow_control import SendBuffer
from penstock.http2.frames import Limits
from penstock.http2.stream import Stream


def opened(window: int = 1000) -> tuple[SendBuffer, Stream, list[int]]:
    ended: list[int] = []
    buffer = SendBuffer(Limits(), lambda stream: ended.append(stream.id))
    return buffer, Stream(1, window, 0), ended


def data(buffer: SendBuffer) -> bytes:
    """The contents of the DATA frames that are ready."""
    sent, found = b"".join(map(bytes, buffer.take_ready())), b""
    while sent:
        size, kind = int.from_bytes(sent[:3]), sent[3]
        found += sent[9 : 9 + size] if kind == 0 else b""
        sent = sent[9 + size :]
    return found


def test_what_comes_later_waits_for_what_is_queued() -> None:
    """Also where the socket takes more by now."""
    buffer, stream, _ = opened()
    buffer.paused = True
    buffer.send_body(stream, [b"one"], 3)
    assert data(buffer) == b""
    buffer.paused = False
    buffer.send_body(stream, [b"two"], 3)
    assert data(buffer) == b"onetwo"
    assert (stream.window, stream.waiting_size) == (994, 0)


@pytest.mark.parametrize(("size", "waiting"), [(1000, 0), (1001, 1)])
def test_a_window_is_used_up_exactly(size: int, waiting: int) -> None:
    buffer, stream, _ = opened()
    buffer.send_body(stream, [b"x" * size], size)
    assert (len(data(buffer)), stream.waiting_size) == (1000, waiting)
    buffer.widen_stream(stream, 1)
    buffer.pump()
    assert len(data(buffer)) == waiting


def test_a_window_of_the_connection_is_used_up_exactly() -> None:
    buffer, stream, _ = opened(1 << 20)
    buffer.window = 5
    buffer.send_body(stream, [b"12345"], 5)
    buffer.send_body(stream, [b"6"], 1)
    assert data(buffer) == b"12345"
    buffer.widen(1)
    buffer.pump()
    assert data(buffer) == b"6"


def test_trailers_come_behind_what_is_queued() -> None:
    buffer, stream, ended = opened()
    buffer.paused = True
    buffer.send_body(stream, [b"one"], 3)
    buffer.finish(stream, b"end")
    assert ended == []
    buffer.paused = False
    buffer.pump()
    assert ended == [1]
    assert b"".join(map(bytes, buffer.take_ready())).endswith(b"end")


def test_nothing_of_a_discarded_stream_is_sent() -> None:
    buffer, stream, ended = opened()
    buffer.paused = True
    buffer.send_body(stream, [b"one"], 3)
    buffer.discard(stream)
    buffer.paused = False
    buffer.pump()
    assert (data(buffer), ended) == (b"", [])
