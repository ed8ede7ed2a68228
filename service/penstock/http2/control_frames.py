"""Handlers of control frames: SETTINGS, PING, WINDOW_UPDATE, GOAWAY (RFC 9113 section 6)."""

from __future__ import annotations

from typing import Protocol

from penstock.http2 import frames, peer_limits
from penstock.http2.errors import ErrorCode, ProtocolError, StreamError
from penstock.http2.frames import ACK, LARGEST_ID
from penstock.http2.keepalive import PingStrikes
from penstock.http2.limits import Limits
from penstock.http2.peer_limits import StreamIds
from penstock.http2.send_buffer import SendBuffer
from penstock.http2.stream import Stream

DRAINING = b"draining"
"""Payload of the ping after a GOAWAY: its answer shows that the client has read the GOAWAY."""


class ConnectionEvents(Protocol):
    """The connection, as its control frames see it; `now` is in seconds."""

    @property
    def now(self) -> float: ...

    def on_settings(self) -> None:
        """The peer has sent its settings."""

    def on_idle_frame(self) -> None:
        """The peer has sent a frame that does no work."""

    def finish_draining(self) -> None:
        """The client has read the GOAWAY."""


class ControlFrames:
    """Applies the control frames of a peer to the streams and the send buffer."""

    def __init__(
        self,
        limits: Limits,
        send_buffer: SendBuffer,
        streams: dict[int, Stream],
        ids: StreamIds,
        strikes: PingStrikes,
        events: ConnectionEvents,
    ) -> None:
        self._limits = limits
        self._send_buffer = send_buffer
        self._streams = streams
        self._ids = ids
        self._strikes = strikes
        self._events = events
        self._sent = 0  # bytes of streams, at the last ping

    def settings(self, flags: int, stream_id: int, payload: memoryview) -> None:
        _check_connection(stream_id)
        if flags & ACK:
            if payload:
                raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS ack with a payload")
            self._events.on_idle_frame()
            return
        self._events.on_settings()
        self._events.on_idle_frame()
        values = frames.read_settings(payload)
        peer_limits.check_settings(values)
        last = dict(values)
        for name, value in values:
            # Widening all streams is work: done once a frame, however often the frame asks for it.
            if name != peer_limits.INITIAL_WINDOW_SIZE or value == last[name]:
                self._set(name, value)
        self._send_buffer.queue_reply(frames.settings_ack())

    def _set(self, name: int, value: int) -> None:
        send_buffer = self._send_buffer
        if name == peer_limits.INITIAL_WINDOW_SIZE:
            more, send_buffer.initial_window = value - send_buffer.initial_window, value
            for stream in self._streams.values() if more else ():
                try:
                    send_buffer.widen_stream(stream, more)
                except StreamError as error:
                    raise ProtocolError(error.code, error.reason) from error
        elif name == peer_limits.MAX_FRAME_SIZE:
            send_buffer.max_frame = min(value, self._limits.max_frame_size)
        elif name == peer_limits.HEADER_TABLE_SIZE and value < self._limits.header_table_size:
            send_buffer.lowered_table = True

    def ping(self, flags: int, stream_id: int, payload: memoryview) -> None:
        _check_connection(stream_id)
        if len(payload) != 8:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "PING of a wrong length")
        events, sent = self._events, self._send_buffer.sent
        if flags & ACK:
            events.on_idle_frame()
            if payload == DRAINING:
                events.finish_draining()
            return
        if sent == self._sent:  # else the client may measure the latency of a response
            events.on_idle_frame()
        self._sent = sent
        if self._strikes.ping(events.now, sent, bool(self._streams)):
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")
        self._send_buffer.queue_reply(frames.ping(bytes(payload), ack=True))

    def window_update(self, _: int, stream_id: int, payload: memoryview) -> None:
        increment = frames.read_word(payload, "WINDOW_UPDATE") & LARGEST_ID
        if not stream_id:
            if not increment:
                raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
            self._send_buffer.widen(increment)
            return
        self._ids.check_opened(stream_id)
        if not increment:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._send_buffer.widen_stream(stream, increment)

    def priority(self, _: int, stream_id: int, payload: memoryview) -> None:
        """Check a PRIORITY frame; priorities are ignored."""
        if not stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "PRIORITY of the connection")
        if len(payload) != 5:
            raise StreamError(stream_id, ErrorCode.FRAME_SIZE_ERROR, "PRIORITY of a wrong length")
        frames.check_dependency(stream_id, payload)
        self._events.on_idle_frame()

    def goaway(self, _: int, stream_id: int, payload: memoryview) -> None:
        """Check a GOAWAY frame; there is nothing to do until the peer closes the connection."""
        _check_connection(stream_id)
        if len(payload) < 8:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY of a wrong length")
        self._events.on_idle_frame()

    def push_promise(self, _: int, __: int, ___: memoryview) -> None:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE from a client")


def _check_connection(stream_id: int) -> None:
    if stream_id:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "frame of the connection on a stream")
