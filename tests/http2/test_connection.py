"""The rules of a connection, frame by frame; h2spec knows more of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from http2.peer import HEAD, Server, error_of, opened, request, resets_of
from penstock.http2 import frames
from penstock.http2.frame_parser import MOST_FRAMES
from penstock.http2.frames import ACK, END_STREAM, PADDED, ErrorCode, FrameType, Limits

pytestmark = pytest.mark.interpreted("its streams derive from a class that would be compiled")


def data(
    stream_id: int, payload: bytes, *, ends: bool = False, padding: int | None = None
) -> bytes:
    flags = END_STREAM if ends else 0
    if padding is not None:
        flags |= PADDED
        payload = bytes([padding]) + payload + bytes(padding)
    return frames.frame(FrameType.DATA, flags, stream_id, payload)


CANCELLED = frames.rst_stream(1, ErrorCode.CANCEL)


def test_request_reaches_its_stream_whole_in_any_pieces() -> None:
    sent = request(1, ends=False) + data(1, b"hello ") + data(1, b"world", ends=True)
    server = opened()
    for byte in sent:
        server.receive(bytes([byte]))
    assert bytes(server.opened[1].data) == b"hello world"
    assert server.opened[1].ended == 1


FRAMES = st.lists(
    st.tuples(
        st.sampled_from([1, 3]),
        st.binary(max_size=40),
        st.sampled_from([None, None, None, 0, 3]),
        st.booleans(),
    ),
    max_size=30,
)


@given(FRAMES, st.integers(1, 200))
def test_frames_that_follow_each_other_are_as_good_as_one(
    pieces: list[tuple[int, bytes, int | None, bool]], size: int
) -> None:
    sent = request(1, ends=False) + request(3, ends=False)
    for stream_id, payload, padding, ping in pieces:
        sent += data(stream_id, payload, padding=padding)
        sent += frames.ping(b"12345678") if ping else b""
    sent += data(1, b"", ends=True) + data(3, b"x", ends=True)
    server = opened(Limits(stream_window=300, connection_window=70_000))
    for at in range(0, len(sent), size):
        server.receive(sent[at : at + size])
    for stream_id, last in ((1, b""), (3, b"x")):
        stream = server.opened[stream_id]
        expected = b"".join(payload for number, payload, *_ in pieces if number == stream_id)
        assert (bytes(stream.data), stream.ended) == (expected + last, 1)
    assert not server.connection.closing


def test_frames_of_one_read_are_counted_all_together() -> None:
    server = opened(Limits(stream_window=20, connection_window=70_000))
    server.receive(request(1, ends=False))
    server.receive(request(3, (b"content-length", b"8"), ends=False))
    server.opened[1].greedy = False
    server.receive(data(1, bytes(9)) * 3)
    assert resets_of(server) == [(1, ErrorCode.FLOW_CONTROL_ERROR)]
    server.receive(data(3, bytes(3)) * 3)
    assert resets_of(server) == [(3, ErrorCode.PROTOCOL_ERROR)]
    assert not server.connection.closing


def test_padding_is_no_data_and_given_back() -> None:
    server = opened(Limits(connection_window=70_000, stream_window=2_000))
    server.receive(request(1, ends=False) + data(1, b"x", padding=255) * 300)
    assert bytes(server.opened[1].data) == b"x" * 300
    assert not server.connection.closing


def test_continuation_completes_a_block() -> None:
    block = request(1)[frames.HEADER_SIZE :]
    server = opened()
    server.receive(frames.frame(FrameType.HEADERS, END_STREAM, 1, block[:3]))
    server.receive(frames.frame(FrameType.CONTINUATION, 0, 1, block[3:5]))
    server.receive(frames.frame(FrameType.CONTINUATION, frames.END_HEADERS, 1, block[5:]))
    assert server.opened[1].ended == 1


def test_unknown_frames_are_skipped() -> None:
    server = opened()
    server.receive(frames.frame(0xBB, 0xFF, 7, bytes(100_000)) + request(1))
    assert server.opened[1].ended == 1


def test_ping_is_answered() -> None:
    server = opened()
    server.receive(frames.ping(b"12345678"))
    assert server.said() == [(FrameType.PING, ACK, 0, b"12345678")]


def test_answer_waits_for_the_window_and_goes_on() -> None:
    server = opened(settings=[(4, 10)])
    server.receive(request(1))
    stream = server.opened[1]
    server.connection.send_buffer.send_headers(stream, b"\x88")
    server.connection.send_buffer.send_body(stream, [b"a" * 25], 25)
    server.connection.send_buffer.finish(stream, b"\x88")
    server.write()
    assert [payload for kind, _, _, payload in server.said() if kind == 0] == [b"a" * 10]
    server.receive(frames.settings([(4, 15)]))
    assert [payload for kind, _, _, payload in server.said() if kind == 0] == [b"a" * 5]
    server.receive(frames.window_update(1, 1000))
    kinds = [(kind, flags & END_STREAM) for kind, flags, _, _ in server.said()]
    assert kinds == [(FrameType.DATA, 0), (FrameType.HEADERS, END_STREAM)]
    assert not server.connection.streams


def test_blocked_streams_take_turns() -> None:
    server = opened()
    server.receive(request(1) + request(3))
    for stream in server.opened.values():
        server.connection.send_buffer.send_body(stream, [bytes(100_000)], 100_000)
    server.write()
    server.said()
    server.receive(frames.window_update(1, 1 << 20) + frames.window_update(3, 1 << 20))
    server.receive(frames.window_update(0, 4 * (1 << 14)))
    turns = [frame[2] for frame in server.said() if frame[0] == 0]
    assert turns in ([1, 3, 1, 3], [3, 1, 3, 1])


def test_end_of_a_stream_waits_for_no_window() -> None:
    server = opened(settings=[(4, 1 << 20)])
    server.receive(request(1) + request(3))
    send_buffer, (first, second) = server.connection.send_buffer, server.opened.values()
    send_buffer.send_body(second, [b"all of it"], 9)
    send_buffer.send_body(first, [bytes(70_000)], 70_000)  # more than the connection's window
    server.write()
    send_buffer.paused = True
    send_buffer.finish(second, b"\x88")
    send_buffer.paused = False
    send_buffer.pump()
    server.write()
    assert [*server.connection.streams] == [1]


def test_early_response_resets_the_rest_of_the_request() -> None:
    server = opened()
    server.receive(request(1, ends=False))
    server.connection.send_buffer.finish(server.opened[1], b"\x88")
    server.write()
    assert resets_of(server) == [(1, ErrorCode.NO_ERROR)]
    server.receive(data(1, b"late", ends=True))
    assert not server.connection.closing


def test_window_is_given_back_when_data_is_used() -> None:
    limits = Limits(stream_window=1000, connection_window=100_000)
    server = opened(limits)
    server.receive(request(1, ends=False))
    stream = server.opened[1]
    stream.greedy = False
    server.receive(data(1, bytes(800)))
    assert server.said() == []
    server.connection.consumed(stream, 800)
    server.write()
    assert server.said() == [(FrameType.WINDOW_UPDATE, 0, 1, (800).to_bytes(4, "big"))]


def test_unread_streams_leave_the_connection_window_to_others() -> None:
    """Behind a proxy they are of other clients."""
    server, count = opened(Limits(stream_window=20_000, connection_window=70_000)), 50
    for stream_id in range(1, 2 * count, 2):
        server.receive(request(stream_id, ends=False))
        server.opened[stream_id].greedy = False
        server.receive(data(stream_id, bytes(16_000)) + data(stream_id, bytes(4_000)))
    assert not server.connection.closing
    given = [payload for kind, _, number, payload in server.said() if (kind, number) == (8, 0)]
    assert sum(int.from_bytes(more, "big") for more in given) >= count * 20_000 - 35_000


def test_credit_is_returned_for_data_of_a_closed_stream() -> None:
    server = opened(Limits(connection_window=70_000))
    server.receive(request(1, ends=False))
    server.connection.send_buffer.finish(server.opened[1], b"\x88")
    server.write()
    server.said()
    server.receive(data(1, bytes(16_000)) * 3)
    assert server.said() == [(FrameType.WINDOW_UPDATE, 0, 0, (48_000).to_bytes(4, "big"))]


def test_data_under_way_to_as_many_streams_as_there_may_be_is_dropped() -> None:
    """A client knows of none of its early answers until it has heard of the first."""
    server, last = opened(), 2 * Limits().max_concurrent_streams
    for stream_id in range(1, last, 2):
        server.receive(request(stream_id, ends=False))
    for stream in list(server.opened.values()):
        server.connection.send_buffer.finish(stream, b"\x88")
    for stream_id in range(last + 1, last + 4001, 2):
        server.receive(request(stream_id, ends=False))
        server.receive(frames.rst_stream(stream_id, ErrorCode.CANCEL))
    for stream_id in range(1, last, 2):
        server.receive(data(stream_id, b"late"))
    assert error_of(server) is None


def test_lowered_table_size_is_acknowledged_in_the_next_block() -> None:
    server = opened(settings=[(1, 100)])
    server.receive(request(1) + request(3))
    for stream in server.opened.values():
        server.connection.send_buffer.finish(stream, b"\x88")
    server.write()
    assert [payload for _, _, _, payload in server.said()] == [b"\x20\x88", b"\x88"]


def test_draining_serves_streams_in_flight_and_closes_after_the_last() -> None:
    server = opened()
    server.receive(request(1))
    server.connection.drain()
    server.write()
    (goaway, ping) = server.said()
    assert goaway[3][:4] == frames.LARGEST_ID.to_bytes(4, "big")
    server.receive(request(3))
    server.receive(frames.ping(ping[3], ack=True) + request(5))
    assert list(server.opened) == [1, 3]
    for stream in server.opened.values():
        assert not server.connection.closing
        server.connection.send_buffer.finish(stream, b"\x88")
    assert server.connection.closing


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frames.frame(FrameType.PUSH_PROMISE, 4, 1, b"\0\0\0\2"), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.PING, 0, 0, b"short"), ErrorCode.FRAME_SIZE_ERROR),
        (frames.frame(FrameType.DATA, 0, 0, b"x"), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.DATA, 0, 9, b"x"), ErrorCode.PROTOCOL_ERROR),
        (request(2), ErrorCode.PROTOCOL_ERROR),
        (request(5) + request(3), ErrorCode.PROTOCOL_ERROR),
        (request(1) + request(5) + request(3), ErrorCode.PROTOCOL_ERROR),
        (frames.window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
        (frames.window_update(0, (1 << 31) - 1), ErrorCode.FLOW_CONTROL_ERROR),
        (frames.settings([(4, 1 << 31)]), ErrorCode.FLOW_CONTROL_ERROR),
        (frames.settings([(5, 100)]), ErrorCode.PROTOCOL_ERROR),
        (frames.settings([(2, 2)]), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.CONTINUATION, 4, 1, b""), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.HEADERS, 4, 1, b"\x80"), ErrorCode.COMPRESSION_ERROR),
        (b"\xff\xff\xff\x00\x00\x00\x00\x00\x01", ErrorCode.FRAME_SIZE_ERROR),
    ],
)
def test_connection_error_is_reported_by_goaway(sent: bytes, code: ErrorCode) -> None:
    server = opened()
    server.receive(sent)
    assert error_of(server) is code


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (request(1, head=HEAD[1:]), ErrorCode.PROTOCOL_ERROR),
        (request(1, (b"Upper", b"x")), ErrorCode.PROTOCOL_ERROR),
        (request(1, (b"connection", b"close")), ErrorCode.PROTOCOL_ERROR),
        (request(1, (b"x", b"a\r\nb")), ErrorCode.PROTOCOL_ERROR),
        (request(1, (b"content-length", b"5")), ErrorCode.PROTOCOL_ERROR),
        (request(1, ends=False) + frames.window_update(1, 0), ErrorCode.PROTOCOL_ERROR),
        (request(1) + data(1, b"x"), ErrorCode.STREAM_CLOSED),
        (request(1, ends=False) + request(1, ends=False), ErrorCode.PROTOCOL_ERROR),
        (request(1, ends=False) + CANCELLED + data(1, b"late"), ErrorCode.STREAM_CLOSED),
        (request(1) + CANCELLED + data(1, b"", ends=True), ErrorCode.STREAM_CLOSED),
        (request(1, ends=False) + CANCELLED + request(1), ErrorCode.STREAM_CLOSED),
    ],
)
def test_stream_error_leaves_other_streams_open(sent: bytes, code: ErrorCode) -> None:
    server = opened()
    server.receive(sent + request(7))
    assert resets_of(server) == [(1, code)]
    assert server.opened[7].ended == 1


def test_data_on_a_stream_that_the_client_reset_leaves_open_streams_alone() -> None:
    server = opened()
    server.receive(request(1, ends=False) + request(3, ends=False) + data(3, b"be"))
    server.receive(CANCELLED + data(1, b"late") + data(3, b"fore", ends=True))
    assert resets_of(server) == [(1, ErrorCode.STREAM_CLOSED)]
    assert (bytes(server.opened[1].data), server.opened[1].resets) == (b"", [ErrorCode.CANCEL])
    assert (bytes(server.opened[3].data), server.opened[3].ended) == (b"before", 1)
    server.connection.send_buffer.finish(server.opened[3], b"\x88")
    assert error_of(server) is None


def test_other_protocol_is_refused_at_its_first_wrong_byte() -> None:
    server = opened()
    assert error_of(server) is None

    other = Server()
    other.receive(b"GET / HTTP/1.1\r\n")
    assert error_of(other) is ErrorCode.PROTOCOL_ERROR


def test_stream_that_ends_with_its_connection_makes_no_other_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = opened()
    server.receive(request(1) + request(3))
    first, second = server.opened[1], server.opened[3]

    def answer_second(_: ErrorCode) -> None:
        if not second.closed:
            server.connection.send_buffer.finish(second, b"\x88")

    monkeypatch.setattr(first, "on_reset", answer_second)
    server.connection.lost()
    assert second.resets == [ErrorCode.CANCEL]


def test_frames_beyond_what_is_parsed_at_once_are_left_for_later() -> None:
    server = opened()
    sent = memoryview(b"".join(request(2 * number + 1) for number in range(MOST_FRAMES + 1)))
    done = server.connection.receive(sent)
    assert (len(server.opened), server.connection.parser.interrupted) == (MOST_FRAMES, True)
    assert done + server.connection.receive(sent[done:]) == len(sent)
    assert (len(server.opened), server.connection.parser.interrupted) == (MOST_FRAMES + 1, False)
