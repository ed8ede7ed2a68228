"""Frames that concern a connection as a whole, or just its windows (RFC 9113 section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.http2 import frames, peer_limits
from penstock.http2.errors import ErrorCode, ProtocolError, StreamError
from penstock.http2.frames import ACK, LARGEST_ID
from penstock.http2.keepalive import Strikes

if TYPE_CHECKING:
    from penstock.http2.connection import Connection

DRAINING = b"draining"
"""The ping whose answer says that the client knows that it shall open no more streams."""


class ControlFrames:
    """Does what the peer's control frames ask of its connection."""

    def __init__(self, connection: Connection[Any], strikes: Strikes) -> None:
        self._connection = connection
        self._outbox = connection.outbox
        self._limits = connection.limits
        self._strikes = strikes
        self._sent = 0  # bytes of streams, when the last ping came

    def settings(self, flags: int, stream_id: int, payload: memoryview) -> None:
        _check_connection(stream_id)
        if flags & ACK:
            if payload:
                raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS ack with a payload")
            self._connection.spend_idle()
            return
        self._connection.reader.settings_came()
        self._connection.spend_idle()
        values = frames.read_settings(payload)
        peer_limits.check(values)
        last = dict(values)
        for name, value in values:
            # To widen all streams is work: done once, however often a frame asks for it.
            if name != peer_limits.INITIAL_WINDOW_SIZE or value == last[name]:
                self._set(name, value)
        self._outbox.control(frames.settings_ack())

    def _set(self, name: int, value: int) -> None:
        outbox = self._outbox
        if name == peer_limits.INITIAL_WINDOW_SIZE:
            more, outbox.initial_window = value - outbox.initial_window, value
            for stream in self._connection.streams.values() if more else ():
                try:
                    outbox.widen_stream(stream, more)
                except StreamError as error:
                    raise ProtocolError(error.code, error.reason) from error
        elif name == peer_limits.MAX_FRAME_SIZE:
            outbox.max_frame = min(value, self._limits.max_frame_size)
        elif name == peer_limits.HEADER_TABLE_SIZE and value < self._limits.header_table_size:
            outbox.lowered_table = True

    def ping(self, flags: int, stream_id: int, payload: memoryview) -> None:
        _check_connection(stream_id)
        if len(payload) != 8:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "PING of a wrong length")
        connection, sent = self._connection, self._outbox.sent
        if flags & ACK:
            connection.spend_idle()
            if payload == DRAINING:
                connection.finish_draining()
            return
        if sent == self._sent:  # else the client may measure how long a response took
            connection.spend_idle()
        self._sent = sent
        if self._strikes.ping(connection.now, sent, bool(connection.streams)):
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")
        self._outbox.control(frames.ping(bytes(payload), ack=True))

    def window_update(self, _: int, stream_id: int, payload: memoryview) -> None:
        increment = frames.read_word(payload, "WINDOW_UPDATE") & LARGEST_ID
        connection = self._connection
        if not stream_id:
            if not increment:
                raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
            self._outbox.widen(increment)
            return
        connection.ids.check_opened(stream_id)
        if not increment:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
        stream = connection.streams.get(stream_id)
        if stream is not None:
            self._outbox.widen_stream(stream, increment)

    def priority(self, _: int, stream_id: int, payload: memoryview) -> None:
        """Nothing follows from priorities, but they have rules."""
        if not stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "PRIORITY of the connection")
        if len(payload) != 5:
            raise StreamError(stream_id, ErrorCode.FRAME_SIZE_ERROR, "PRIORITY of a wrong length")
        frames.check_dependency(stream_id, payload)
        self._connection.spend_idle()

    def goaway(self, _: int, stream_id: int, payload: memoryview) -> None:
        """The peer opens no more streams; there is nothing to do until it leaves."""
        _check_connection(stream_id)
        if len(payload) < 8:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY of a wrong length")
        self._connection.spend_idle()

    def push_promise(self, _: int, __: int, ___: memoryview) -> None:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE from a client")


def _check_connection(stream_id: int) -> None:
    if stream_id:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "frame of the connection on a stream")
