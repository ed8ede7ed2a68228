"""Peers who want to make us work or remember more than they do."""

from __future__ import annotations

import random
import weakref
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.examples import examples
from harness.outcomes import raises_nothing
from http2.peer import Server, error_of, opened, request
from penstock.http2 import frames
from penstock.http2.frames import ErrorCode, FrameType, Limits
from penstock.http2.hpack import Decoder, Field, HeaderCache, encode

pytestmark = pytest.mark.interpreted("its streams derive from a class that would be compiled")


def count_calls(owner: Any, name: str) -> list[tuple[Any, ...]]:
    """The arguments of each call of a method from now on."""
    calls: list[tuple[Any, ...]] = []
    method = getattr(owner, name)

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return method(*arguments)

    setattr(owner, name, counted)
    return calls


EMPTY = frames.frame(FrameType.DATA, 0, 1)


@pytest.mark.parametrize(
    "first",
    [
        frames.frame(FrameType.PING, 0, 0, bytes(8)),
        frames.frame(FrameType.SETTINGS, frames.ACK, 0),
        frames.frame(FrameType.WINDOW_UPDATE, 0, 0, (1).to_bytes(4, "big")),
        request(1),
    ],
    ids=["PING", "an acknowledgement", "WINDOW_UPDATE", "HEADERS"],
)
def test_settings_come_first(first: bytes) -> None:
    """RFC 9113, section 3.4."""
    server = Server()
    server.receive(frames.PREFACE + first)
    assert error_of(server) is ErrorCode.PROTOCOL_ERROR
    assert not server.opened


def test_rapid_reset_is_stopped() -> None:
    """CVE-2023-44487: streams opened and reset at once."""
    server = opened()
    for stream_id in range(1, 30_001, 2):
        server.receive(
            request(stream_id, ends=False) + frames.rst_stream(stream_id, ErrorCode.CANCEL)
        )
    assert error_of(server) is ErrorCode.ENHANCE_YOUR_CALM
    assert len(server.opened) <= 10_001


@pytest.mark.slow
def test_resets_that_the_client_provokes_are_stopped_too() -> None:
    server = opened()
    for stream_id in range(1, 30_001, 2):
        server.receive(request(stream_id, (b"Upper", b"x")))
    assert error_of(server) is ErrorCode.ENHANCE_YOUR_CALM


def test_giving_up_every_call_at_once_is_no_offence() -> None:
    """As a client does whose own clients leave, or whose calls run out of time together."""
    server, streams = opened(), Limits().max_concurrent_streams
    for first in range(1, 8 * streams, 2 * streams):
        ids = range(first, first + 2 * streams, 2)
        server.receive(b"".join(request(stream_id, ends=False) for stream_id in ids))
        server.receive(b"".join(frames.rst_stream(n, ErrorCode.CANCEL) for n in ids))
    assert len(server.opened) == 4 * streams
    assert not server.connection.closing


def test_resets_at_a_rate_that_clients_have_are_no_offence() -> None:
    server = opened()
    for stream_id in range(1, 10_001, 2):
        server.connection.now += 0.02
        server.receive(
            request(stream_id, ends=False) + frames.rst_stream(stream_id, ErrorCode.CANCEL)
        )
    assert not server.connection.closing


@pytest.mark.parametrize(
    "frame",
    [
        frames.ping(b"12345678"),
        frames.settings([]),
        frames.settings([(4, 100)]),
        frames.settings_ack(),
        frames.ping(b"12345678", ack=True),
        frames.goaway(0, ErrorCode.NO_ERROR),
        frames.frame(FrameType.PRIORITY, 0, 3, bytes(5)),
        frames.frame(0xBB, 0, 0),
        EMPTY,
    ],
    ids=[
        *("ping", "settings", "windows", "settings ack", "ping ack", "goaway", "priority"),
        *("unknown", "empty data"),
    ],
)
def test_flood_of_frames_without_effect_is_stopped(frame: bytes) -> None:
    server = opened()
    server.receive(request(1, ends=False))
    for _ in range(100):
        server.receive(frame * 100)
    assert error_of(server) is ErrorCode.ENHANCE_YOUR_CALM


def test_pings_that_follow_responses_are_no_flood() -> None:
    """Clients measure the bytes in flight so, grpc-go with each round trip."""
    server = opened()
    server.receive(request(1, ends=False))
    server.connection.send_buffer.send_headers(server.opened[1], b"\x88")
    for _ in range(5000):
        server.connection.send_buffer.send_body(server.opened[1], [b"x"], 1)
        server.write()
        server.receive(frames.window_update(0, 1) + frames.ping(b"12345678"))
    assert error_of(server) is None
    for _ in range(2000):
        server.receive(frames.ping(b"12345678"))
    assert error_of(server) is ErrorCode.ENHANCE_YOUR_CALM


def test_windows_of_all_streams_change_once_per_frame() -> None:
    """However often a frame says so: 64 settings for 1,000 streams would be work for little."""
    server = opened()
    for stream_id in range(1, 2001, 2):
        server.receive(request(stream_id, ends=False))
    changes = count_calls(server.connection.send_buffer, "widen_stream")
    server.receive(frames.settings([(4, 1000), (4, 2000)] * 32))
    assert len(changes) == 1000
    assert {stream.window for stream in server.connection.streams.values()} == {2000}


def test_client_that_reads_nothing_gets_no_further_streams() -> None:
    """Else the beginnings of responses to streams opened and reset would pile up."""
    server = opened(Limits(reset_burst=1 << 30, max_unsent_control=1 << 20))
    send_buffer = server.connection.send_buffer
    send_buffer.paused = True
    for stream_id in range(1, 4001, 2):
        server.receive(request(stream_id, ends=False))
        if stream_id in server.connection.streams:
            send_buffer.send_headers(server.connection.streams[stream_id], bytes(10_000))
            server.receive(frames.rst_stream(stream_id, ErrorCode.CANCEL))
    assert len(server.opened) < 430
    assert not server.connection.streams


def test_streams_that_wait_for_the_socket_are_forgotten_when_reset() -> None:
    server = opened()
    send_buffer = server.connection.send_buffer
    send_buffer.paused = True
    server.receive(request(1))
    stream = server.opened.pop(1)
    send_buffer.notify_when_writable(stream)
    forgotten = weakref.ref(stream)
    server.receive(frames.rst_stream(1, ErrorCode.CANCEL))
    del stream
    assert forgotten() is None


def test_short_block_that_stands_for_much_is_not_remembered() -> None:
    """A field put in the dynamic table is a byte in each later block."""
    reads: list[int] = []

    def read(fields: tuple[Field, ...] | None) -> int:
        reads.append(len(fields or ()))
        return len(reads)

    blocks = HeaderCache(Decoder(4096, 64 << 10), read)
    blocks.decode(b"\x40\x01a\x7f\xa1\x1e" + bytes(4000))
    for block in (b"\xbe" * 10, b"\xbe" * 10, b"\x82", b"\x82"):
        blocks.decode(block)
    assert reads == [1, 10, 10, 1]


def test_blocks_that_differ_each_time_keep_no_others_out() -> None:
    reads: list[tuple[Field, ...] | None] = []
    blocks = HeaderCache(Decoder(4096, 64 << 10), reads.append)
    for number in range(1000):
        blocks.decode(encode([(b"grpc-timeout", b"%dm" % number)]))
    assert len(reads) == 1000
    known: HeaderCache[object] = HeaderCache(Decoder(4096, 64 << 10), lambda fields: object())
    for number in range(1000):
        known.decode(encode([(b"grpc-timeout", b"%dm" % number)]))
    again = encode([(b"x", b"y")])
    assert known.decode(again) is known.decode(again)


def test_flood_of_continuations_is_stopped() -> None:
    server = opened()
    server.receive(frames.frame(FrameType.HEADERS, 0, 1, b"\x83"))
    server.receive(frames.frame(FrameType.CONTINUATION, 0, 1) * 100)
    assert error_of(server) is ErrorCode.ENHANCE_YOUR_CALM


def test_header_block_without_an_end_is_stopped() -> None:
    server = opened()
    server.receive(frames.frame(FrameType.HEADERS, 0, 1, bytes(16_000)))
    for _ in range(10):
        server.receive(frames.frame(FrameType.CONTINUATION, 0, 1, bytes(16_000)))
    assert error_of(server) is ErrorCode.ENHANCE_YOUR_CALM


def test_more_data_than_the_window_is_refused() -> None:
    server = opened(Limits(connection_window=70_000, stream_window=1 << 20))
    server.receive(request(1, ends=False))
    server.opened[1].greedy = False
    server.receive(frames.frame(FrameType.DATA, 0, 1, bytes(16_000)) * 5)
    assert error_of(server) is ErrorCode.FLOW_CONTROL_ERROR


def test_streams_beyond_the_limit_are_refused() -> None:
    server = opened(Limits(max_concurrent_streams=3))
    for stream_id in (1, 3, 5, 7):
        server.receive(request(stream_id))
    assert list(server.opened) == [1, 3, 5]
    (refused,) = server.said()
    assert refused == (FrameType.RST_STREAM, 0, 7, bytes([0, 0, 0, ErrorCode.REFUSED_STREAM]))


def test_reset_streams_with_running_handlers_do_not_count_as_open() -> None:
    server = opened(Limits(max_concurrent_streams=3, max_lingering_streams=4))
    server.connection.lingering = 3
    server.receive(request(1) + request(3) + request(5) + request(7))
    assert list(server.opened) == [1, 3, 5]


def test_reset_streams_with_running_handlers_have_a_limit_of_their_own() -> None:
    server = opened(Limits(max_concurrent_streams=3, max_lingering_streams=4))
    server.connection.lingering = 4
    server.receive(request(1))
    assert not server.opened


@given(st.binary(max_size=400), st.integers(1, 50))
@example(bytes(100), 7)
@settings(max_examples=examples(300), deadline=None)
def test_any_bytes_end_in_frames_or_an_error(data: bytes, cut: int) -> None:
    server = opened()
    with raises_nothing():
        for at in range(0, len(data), cut):
            server.receive(data[at : at + cut])


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(200), deadline=None)
def test_any_change_of_a_talk_ends_in_frames_or_an_error(seed: int) -> None:
    """Bytes of a good conversation, some of them changed, dropped or doubled."""
    dice = random.Random(seed)
    talk = bytearray(
        request(1, ends=False)
        + frames.frame(FrameType.DATA, frames.PADDED, 1, b"\x03abcdef\0\0\0")
        + frames.window_update(0, 1000)
        + request(3, (b"x-a", b"1"))
        + frames.rst_stream(1, ErrorCode.CANCEL)
        + frames.settings([(4, 1000), (5, 20_000)])
        + frames.ping(b"12345678")
        + request(5)
    )
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(talk))
        match dice.randrange(3):
            case 0:
                talk[at] = dice.randrange(256)
            case 1:
                del talk[at : at + dice.randrange(12)]
            case _:
                talk[at:at] = talk[at : at + dice.randrange(40)]
        if not talk:
            return
    server = Server()
    server.receive(frames.PREFACE + frames.settings([]) + bytes(talk))
    assert server.connection.closing or len(server.connection.streams) <= 64
