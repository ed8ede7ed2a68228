"""The server side of an HTTP/2 connection (RFC 9113), without I/O: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from penstock.http2 import flow_control, frames
from penstock.http2.flow_control import ReceiveWindows, SendBuffer, StreamIds, TokenBucket
from penstock.http2.frame_parser import FrameParser
from penstock.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    LARGEST_ID,
    PADDED,
    PRIORITY,
    ErrorCode,
    FrameType,
    Limits,
    ProtocolError,
    StreamError,
)
from penstock.http2.hpack import Decoder, Field, HeaderCache
from penstock.http2.keepalive import PingStrikes
from penstock.http2.request_headers import MalformedError, check_trailers
from penstock.http2.stream import Stream

T = TypeVar("T")


class Connection(Generic[T]):
    """The state machine of a connection: dispatches frames, opens streams, and closes them.

    `read` parses the header fields of a request (`None` for too many) into an argument of
    `open_stream`; it raises `MalformedError` for fields that are not a request. The caller sets
    `now` (seconds) before each `receive` or `filled`, writes the contents of `send_buffer` after
    it, and closes the socket when `closing` is true.
    """

    def __init__(
        self,
        limits: Limits,
        read: Callable[[tuple[Field, ...] | None], T],
        open_stream: Callable[[int, T], Stream],
        strikes: PingStrikes | None = None,
    ) -> None:
        self.limits = limits
        self.now = 0.0
        self.closing = False
        self.streams: dict[int, Stream] = {}
        self.lingering = 0
        """Streams that were reset while their handlers still run."""
        self.send_buffer = SendBuffer(limits, self._local_end)
        self.parser = FrameParser(limits, self)
        self.ids = StreamIds(limits.max_concurrent_streams, limits.remembered_resets)
        self._open_stream = open_stream
        self._header_cache = HeaderCache(
            Decoder(limits.header_table_size, limits.max_header_list_size), read
        )
        self._block = bytearray()
        self._block_ends_stream = False
        self._continuations = 0
        self._windows = ReceiveWindows(limits, self.send_buffer)
        self._idle = TokenBucket("frames without effect", limits.idle_burst, limits.idle_rate)
        self._resets = TokenBucket("streams reset", limits.reset_burst, limits.reset_rate)
        control = ControlFrames(
            limits, self.send_buffer, self.streams, self.ids, strikes or PingStrikes(), self
        )
        self._handlers: dict[int, Callable[[int, int, memoryview], None]] = {
            FrameType.HEADERS: self._headers,
            FrameType.PRIORITY: control.priority,
            FrameType.RST_STREAM: self._rst_stream,
            FrameType.SETTINGS: control.settings,
            FrameType.PUSH_PROMISE: control.push_promise,
            FrameType.PING: control.ping,
            FrameType.GOAWAY: control.goaway,
            FrameType.WINDOW_UPDATE: control.window_update,
            FrameType.CONTINUATION: self._continuation,
        }
        self.send_buffer.queue(frames.settings(flow_control.server_settings(limits)))
        if limits.connection_window > self.send_buffer.window:
            more = limits.connection_window - self.send_buffer.window
            self.send_buffer.queue(frames.window_update(0, more))

    # -- for the asyncio protocol -------------------------------------------------------------

    @property
    def receive_window(self) -> int:
        """Bytes that the peer may still send on the connection."""
        return self._windows.left

    def receive(self, data: memoryview) -> int:
        """Process received bytes; returns how many are consumed. The rest must be passed again."""
        try:
            done = self.parser.feed(data)
            self.send_buffer.pump()
        except ProtocolError as error:
            self.fail(error)
            return len(data)
        return done

    def filled(self, size: int) -> None:
        """Process `size` bytes that were read straight into `parser.memory()`."""
        try:
            self.parser.filled(size)
            self.send_buffer.pump()
        except ProtocolError as error:
            self.fail(error)

    def drain(self) -> None:
        """Send a GOAWAY; streams that the peer opens before it has read it are served."""
        if not self.closing and self.ids.final == LARGEST_ID:
            self.send_buffer.queue(frames.goaway(LARGEST_ID, ErrorCode.NO_ERROR))
            self.send_buffer.queue(frames.ping(DRAINING))

    def finish_draining(self) -> None:
        """Refuse further streams, and close after the last one."""
        if not self.closing and self.ids.final == LARGEST_ID:
            self.ids.final = self.ids.last
            self.send_buffer.queue(frames.goaway(self.ids.last, ErrorCode.NO_ERROR))
            self.closing = not self.streams

    def fail(self, error: ProtocolError) -> None:
        """Terminate the connection, with a GOAWAY that gives the reason."""
        if not self.closing:
            self.send_buffer.queue(frames.goaway(self.ids.last, error.code, error.reason))
        self.lost()

    def lost(self) -> None:
        """Reset every stream: the socket is closed, or will be."""
        self.closing = self.parser.stopped = True
        streams = list(self.streams.values())
        self.streams.clear()
        for stream in streams:  # all of them first: a reset may make another stream answer
            stream.closed = True
            self.send_buffer.discard(stream)
        for stream in streams:
            stream.on_reset(ErrorCode.CANCEL)

    # -- for streams --------------------------------------------------------------------------

    def consumed(self, stream: Stream, size: int) -> None:
        """Return the credit for `size` bytes of a request that its handler has consumed."""
        if not stream.closed:
            self._windows.return_credit(stream, size)

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """Reset a stream; its `on_reset` is not called."""
        if stream.closed:
            return
        self.ids.reset(stream.id, by_server=True)
        self._close(stream)
        try:
            self.send_buffer.queue_reply(frames.rst_stream(stream.id, code))
        except ProtocolError as error:
            self.fail(error)

    # -- control frames: see `ConnectionEvents` -----------------------------------------------

    def on_settings(self) -> None:
        self.parser.opened = True

    def on_idle_frame(self) -> None:
        self._idle.spend(self.now)

    # -- frames: see `FrameHandler` -----------------------------------------------------------

    def on_frame(self, kind: int, flags: int, stream_id: int, payload: memoryview) -> None:
        self._handlers[kind](flags, stream_id, payload)

    def on_unknown(self) -> None:
        self._idle.spend(self.now)

    def on_stream_error(self, error: StreamError) -> None:
        self._resets.spend(self.now)
        stream = self.streams.get(error.stream_id)
        if stream is not None:
            self.reset(stream, error.code)
            stream.on_reset(error.code)
            return
        self.send_buffer.queue_reply(frames.rst_stream(error.stream_id, error.code))
        self.ids.reset(error.stream_id, by_server=True)

    def on_data_begin(self, flags: int, stream_id: int, size: int) -> Stream | None:
        self._windows.receive(size)
        stream = self.streams.get(stream_id)
        if stream is None:
            self.ids.check_gone(stream_id)
            return None
        if stream.remote_ended:
            raise StreamError(stream_id, ErrorCode.STREAM_CLOSED, "DATA after the end")
        self._windows.receive_on_stream(stream, size)
        if stream.content_left is not None:
            stream.content_left -= size
        if not size and not flags & END_STREAM:
            self._idle.spend(self.now)
        return stream

    def on_padding(self, stream: Stream, size: int) -> None:
        self.consumed(stream, size)
        if stream.content_left is not None:
            stream.content_left += size

    def on_data_end(self, stream: Stream, ended: bool) -> None:
        if stream.content_left is not None and stream.content_left < 0:
            raise StreamError(stream.id, ErrorCode.PROTOCOL_ERROR, "more than content-length")
        if ended:
            self._remote_end(stream)

    # -- streams ------------------------------------------------------------------------------

    def _headers(self, flags: int, stream_id: int, payload: memoryview) -> None:
        if not stream_id & 1:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "HEADERS on a stream of the server")
        if flags & (PADDED | PRIORITY):
            payload = frames.fragment(flags, stream_id, payload)
        if flags & END_HEADERS:
            self._header_block(stream_id, bytes(payload), bool(flags & END_STREAM))
            return
        self._block[:] = payload
        self._block_ends_stream = bool(flags & END_STREAM)
        self._continuations = 0
        self.parser.block_stream = stream_id

    def _continuation(self, flags: int, stream_id: int, payload: memoryview) -> None:
        if not self.parser.block_stream:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of nothing")
        self._block += payload
        self._continuations += 1
        if (
            len(self._block) > self.limits.longest_block
            or self._continuations > self.limits.max_continuations
        ):
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "header block without an end")
        if flags & END_HEADERS:
            self.parser.block_stream = 0
            block = bytes(self._block)
            self._block.clear()
            self._header_block(stream_id, block, self._block_ends_stream)

    def _header_block(self, stream_id: int, block: bytes, ends: bool) -> None:
        """Open a stream, or end one by its trailers. Blocks of refused streams are decoded too."""
        ids = self.ids
        if stream_id <= ids.last:
            self._trailers(stream_id, self._header_cache.decode_uncached(block), ends)
            return
        ids.open(stream_id)
        if stream_id > ids.final:
            self._header_cache.decode_uncached(block)
            ids.reset(stream_id, by_server=True)
            return
        limits = self.limits
        if (
            len(self.streams) >= limits.max_concurrent_streams
            or self.lingering >= limits.max_lingering_streams
            or self.send_buffer.full
        ):
            self._header_cache.decode_uncached(block)
            raise StreamError(stream_id, ErrorCode.REFUSED_STREAM, "too many streams")
        try:
            request = self._header_cache.decode(block)
        except MalformedError as error:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, str(error)) from error
        stream = self.streams[stream_id] = self._open_stream(stream_id, request)
        stream.on_open()
        if ends and not stream.closed:
            self._remote_end(stream)

    def _trailers(self, stream_id: int, fields: tuple[Field, ...] | None, ends: bool) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            self.ids.check_gone(stream_id)
            return
        if stream.remote_ended:
            raise StreamError(stream_id, ErrorCode.STREAM_CLOSED, "HEADERS after the end")
        try:
            if not ends or fields is None:
                raise MalformedError("trailers that do not end the stream, or too many")
            check_trailers(fields)
        except MalformedError as error:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR, str(error)) from error
        self._remote_end(stream)

    def _rst_stream(self, _: int, stream_id: int, payload: memoryview) -> None:
        code = frames.read_word(payload, "RST_STREAM")
        self.ids.check_opened(stream_id)
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._resets.spend(self.now)
            self._close(stream)
            self.ids.reset(stream_id, by_server=False)
            known = code in ErrorCode.__members__.values()
            stream.on_reset(ErrorCode(code) if known else ErrorCode.INTERNAL_ERROR)

    def _remote_end(self, stream: Stream) -> None:
        if stream.content_left:
            raise StreamError(stream.id, ErrorCode.PROTOCOL_ERROR, "not the content-length")
        stream.remote_ended = True
        stream.on_end()

    def _local_end(self, stream: Stream) -> None:
        """Close a stream whose response is sent; the rest of its request is discarded."""
        if not stream.remote_ended:
            self.send_buffer.queue(frames.rst_stream(stream.id, ErrorCode.NO_ERROR))
            self.ids.reset(stream.id, by_server=True)
        self._close(stream)

    def _close(self, stream: Stream) -> None:
        stream.closed = True
        del self.streams[stream.id]
        self.send_buffer.discard(stream)
        if not self.streams and self.ids.final != LARGEST_ID:
            self.closing = True


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
        flow_control.check_settings(values)
        last = dict(values)
        for name, value in values:
            # Widening all streams is work: done once a frame, however often the frame asks for it.
            if name != flow_control.INITIAL_WINDOW_SIZE or value == last[name]:
                self._set(name, value)
        self._send_buffer.queue_reply(frames.settings_ack())

    def _set(self, name: int, value: int) -> None:
        send_buffer = self._send_buffer
        if name == flow_control.INITIAL_WINDOW_SIZE:
            more, send_buffer.initial_window = value - send_buffer.initial_window, value
            for stream in self._streams.values() if more else ():
                try:
                    send_buffer.widen_stream(stream, more)
                except StreamError as error:
                    raise ProtocolError(error.code, error.reason) from error
        elif name == flow_control.MAX_FRAME_SIZE:
            send_buffer.max_frame = min(value, self._limits.max_frame_size)
        elif name == flow_control.HEADER_TABLE_SIZE and value < self._limits.header_table_size:
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
