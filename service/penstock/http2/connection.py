"""A server's side of one HTTP/2 connection (RFC 9113): bytes in, events and bytes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.http2 import frames, peer_limits
from penstock.http2.control_frames import DRAINING, ControlFrames
from penstock.http2.errors import ErrorCode, ProtocolError, StreamError
from penstock.http2.frame_reader import FrameReader
from penstock.http2.frames import (
    END_HEADERS,
    END_STREAM,
    LARGEST_ID,
    PADDED,
    PRIORITY,
    FrameType,
)
from penstock.http2.hpack import Decoder, Field, HeaderBlocks
from penstock.http2.keepalive import Strikes
from penstock.http2.limits import Limits
from penstock.http2.peer_limits import Patience, ReceiveWindows, StreamIds
from penstock.http2.request_headers import MalformedError, check_trailers
from penstock.http2.send_buffer import Outbox
from penstock.http2.stream import Stream

T = TypeVar("T")


class Connection(Generic[T]):
    """Keeps the state of streams, and says what to answer.

    `read` turns the fields of a request, `None` for too many, into what `open_stream` makes a
    stream of; it raises `MalformedError` for what is no request. The shell around a connection
    sets `now` (seconds) before each pass, writes what is in `outbox` after it, and closes the
    socket when `closing` is true.
    """

    def __init__(
        self,
        limits: Limits,
        read: Callable[[tuple[Field, ...] | None], T],
        open_stream: Callable[[int, T], Stream],
        strikes: Strikes | None = None,
    ) -> None:
        self.limits = limits
        self.now = 0.0
        self.closing = False
        self.streams: dict[int, Stream] = {}
        self.lingering = 0
        """Streams that are gone while somebody still works for them."""
        self.outbox = Outbox(limits, self._local_end)
        self.reader = FrameReader(limits, self)
        self.ids = StreamIds(limits.max_concurrent_streams, limits.remembered_resets)
        self._open_stream = open_stream
        self._blocks = HeaderBlocks(
            Decoder(limits.header_table_size, limits.max_header_list_size), read
        )
        self._block = bytearray()
        self._block_ends_stream = False
        self._continuations = 0
        self._windows = ReceiveWindows(limits, self.outbox)
        self._idle = Patience("frames without effect", limits.idle_burst, limits.idle_rate)
        self._resets = Patience("streams reset", limits.reset_burst, limits.reset_rate)
        control = ControlFrames(self, strikes or Strikes())
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
        self.outbox.say(frames.settings(peer_limits.ours(limits)))
        if limits.connection_window > self.outbox.window:
            more = limits.connection_window - self.outbox.window
            self.outbox.say(frames.window_update(0, more))

    # -- for the shell ------------------------------------------------------------------------

    @property
    def receive_window(self) -> int:
        """Bytes that the peer may still send on the connection."""
        return self._windows.left

    def receive(self, data: memoryview) -> int:
        """Take what has come; how much of it is done with. The rest has to come again."""
        try:
            done = self.reader.feed(data)
            self.outbox.pump()
        except ProtocolError as error:
            self.fail(error)
            return len(data)
        return done

    def filled(self, size: int) -> None:
        """So many bytes were read straight into `reader.memory()`."""
        try:
            self.reader.filled(size)
            self.outbox.pump()
        except ProtocolError as error:
            self.fail(error)

    def drain(self) -> None:
        """Tell the peer to open no more streams; those that it opens meanwhile are served."""
        if not self.closing and self.ids.final == LARGEST_ID:
            self.outbox.say(frames.goaway(LARGEST_ID, ErrorCode.NO_ERROR))
            self.outbox.say(frames.ping(DRAINING))

    def finish_draining(self) -> None:
        """Serve no further streams, and close after the last."""
        if not self.closing and self.ids.final == LARGEST_ID:
            self.ids.final = self.ids.last
            self.outbox.say(frames.goaway(self.ids.last, ErrorCode.NO_ERROR))
            self.closing = not self.streams

    def fail(self, error: ProtocolError) -> None:
        """Leave the connection, with a reason for the peer."""
        if not self.closing:
            self.outbox.say(frames.goaway(self.ids.last, error.code, error.reason))
        self.lost()

    def lost(self) -> None:
        """Nothing comes or goes any more: every stream ends."""
        self.closing = self.reader.stopped = True
        streams = list(self.streams.values())
        self.streams.clear()
        for stream in streams:  # all of them, before one can make another answer
            stream.closed = True
            self.outbox.drop(stream)
        for stream in streams:
            stream.on_reset(ErrorCode.CANCEL)

    # -- for streams --------------------------------------------------------------------------

    def consumed(self, stream: Stream, size: int) -> None:
        """So many bytes of a stream's request are used, and as many may come."""
        if not stream.closed:
            self._windows.give_back(stream, size)

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """End a stream before its time; it gets no event of this."""
        if stream.closed:
            return
        self.ids.reset(stream.id, by_us=True)
        self._close(stream)
        try:
            self.outbox.control(frames.rst_stream(stream.id, code))
        except ProtocolError as error:
            self.fail(error)

    def spend_idle(self) -> None:
        """The peer has sent a frame that does no work."""
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
        self.outbox.control(frames.rst_stream(error.stream_id, error.code))
        self.ids.reset(error.stream_id, by_us=True)

    def on_data_begin(self, flags: int, stream_id: int, size: int) -> Stream | None:
        self._windows.take(size)
        stream = self.streams.get(stream_id)
        if stream is None:
            self.ids.check_gone(stream_id)
            return None
        if stream.remote_ended:
            raise StreamError(stream_id, ErrorCode.STREAM_CLOSED, "DATA after the end")
        self._windows.take_on(stream, size)
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
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "HEADERS on a stream of ours")
        if flags & (PADDED | PRIORITY):
            payload = frames.fragment(flags, stream_id, payload)
        if flags & END_HEADERS:
            self._header_block(stream_id, bytes(payload), bool(flags & END_STREAM))
            return
        self._block[:] = payload
        self._block_ends_stream = bool(flags & END_STREAM)
        self._continuations = 0
        self.reader.expect_continuation(stream_id)

    def _continuation(self, flags: int, stream_id: int, payload: memoryview) -> None:
        if not self.reader.in_block:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of nothing")
        self._block += payload
        self._continuations += 1
        if (
            len(self._block) > self.limits.longest_block
            or self._continuations > self.limits.max_continuations
        ):
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "header block without an end")
        if flags & END_HEADERS:
            self.reader.expect_continuation(0)
            block = bytes(self._block)
            self._block.clear()
            self._header_block(stream_id, block, self._block_ends_stream)

    def _header_block(self, stream_id: int, block: bytes, ends: bool) -> None:
        """Open a stream, or take the trailers of one. Every block has to be decoded."""
        ids = self.ids
        if stream_id <= ids.last:
            self._trailers(stream_id, self._blocks.skip(block), ends)
            return
        ids.open(stream_id)
        if stream_id > ids.final:
            self._blocks.skip(block)
            ids.reset(stream_id, by_us=True)
            return
        limits = self.limits
        if (
            len(self.streams) >= limits.max_concurrent_streams
            or self.lingering >= limits.max_lingering_streams
            or self.outbox.full
        ):
            self._blocks.skip(block)
            raise StreamError(stream_id, ErrorCode.REFUSED_STREAM, "too many streams")
        try:
            request = self._blocks.read(block)
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
            self.ids.reset(stream_id, by_us=False)
            known = code in ErrorCode.__members__.values()
            stream.on_reset(ErrorCode(code) if known else ErrorCode.INTERNAL_ERROR)

    def _remote_end(self, stream: Stream) -> None:
        if stream.content_left:
            raise StreamError(stream.id, ErrorCode.PROTOCOL_ERROR, "not the content-length")
        stream.remote_ended = True
        stream.on_end()

    def _local_end(self, stream: Stream) -> None:
        """The last frame of a response is out; what the peer still sends is of no interest."""
        if not stream.remote_ended:
            self.outbox.say(frames.rst_stream(stream.id, ErrorCode.NO_ERROR))
            self.ids.reset(stream.id, by_us=True)
        self._close(stream)

    def _close(self, stream: Stream) -> None:
        stream.closed = True
        del self.streams[stream.id]
        self.outbox.drop(stream)
        if not self.streams and self.ids.final != LARGEST_ID:
            self.closing = True
