"""Flow control: limits on the peer (windows, token buckets, settings, stream ids), and the send
buffer of frames to write and of data that waits for the windows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from penstock.core.buffer import join_small
from penstock.http2 import frames
from penstock.http2.frames import (
    END_HEADERS,
    END_STREAM,
    HEADER,
    LARGEST_ID,
    LARGEST_MAX_FRAME,
    LARGEST_WINDOW,
    SMALLEST_MAX_FRAME,
    ErrorCode,
    Limits,
    ProtocolError,
    StreamError,
)
from penstock.http2.hpack import SIZE_UPDATE
from penstock.http2.stream import Buffer, Stream


class ReceiveWindows:
    """The receive windows (flow control) of a connection and of its streams, in bytes.

    Each is widened in steps of half its size: that of a stream when its data is consumed, that of
    the connection as data arrives, so that streams which are not read do not block the others.
    """

    def __init__(self, limits: Limits, send_buffer: SendBuffer) -> None:
        self._send_buffer = send_buffer
        self._stream_half = limits.stream_window / 2
        self._half = limits.connection_window / 2
        self._left = limits.connection_window
        self._owed = 0

    @property
    def left(self) -> int:
        """Bytes that the peer may still send on the connection."""
        return self._left

    def receive(self, size: int) -> None:
        """Account for `size` received bytes on the connection's window."""
        self._left -= size
        if self._left < 0:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the window allows")
        self._owed += size
        if self._owed >= self._half:
            self._send_buffer.queue(frames.window_update(0, self._owed))
            self._left += self._owed
            self._owed = 0

    def receive_on_stream(self, stream: Stream, size: int) -> None:
        """Account for `size` received bytes on the stream's window."""
        stream.receive_left -= size
        if stream.receive_left < 0:
            raise StreamError(stream.id, ErrorCode.FLOW_CONTROL_ERROR, "more DATA than allowed")

    def return_credit(self, stream: Stream, size: int) -> None:
        """Return the credit of `size` consumed bytes to the stream's window."""
        if stream.remote_ended:
            return
        stream.owed += size
        if stream.owed >= self._stream_half:
            self._send_buffer.queue(frames.window_update(stream.id, stream.owed))
            stream.receive_left += stream.owed
            stream.owed = 0


class TokenBucket:
    """A token bucket for frames that cost us more than the peer; `rate` is tokens per second."""

    __slots__ = ("_burst", "_left", "_name", "_rate", "_since")

    def __init__(self, name: str, burst: int, rate: float) -> None:
        self._name = name
        self._burst = self._left = float(burst)
        self._rate = rate
        self._since = 0.0

    def spend(self, now: float) -> None:
        """Take a token, at the time `now` in seconds; raises `ProtocolError` if there is none."""
        self._left = min(self._burst, self._left + (now - self._since) * self._rate) - 1
        self._since = now
        if self._left < 0:
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, f"too many {self._name}")


HEADER_TABLE_SIZE = 1
ENABLE_PUSH = 2
MAX_CONCURRENT_STREAMS = 3
INITIAL_WINDOW_SIZE = 4
MAX_FRAME_SIZE = 5
MAX_HEADER_LIST_SIZE = 6

_MOST_PER_FRAME = 64


def server_settings(limits: Limits) -> list[tuple[int, int]]:
    """The settings that the server sends."""
    return [
        (HEADER_TABLE_SIZE, limits.header_table_size),
        (MAX_CONCURRENT_STREAMS, limits.max_concurrent_streams),
        (INITIAL_WINDOW_SIZE, limits.stream_window),
        (MAX_FRAME_SIZE, limits.max_frame_size),
        (MAX_HEADER_LIST_SIZE, limits.max_header_list_size),
    ]


def check_settings(values: list[tuple[int, int]]) -> None:
    """Raise `ProtocolError` for values that are not allowed."""
    if len(values) > _MOST_PER_FRAME:
        raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "too many settings")
    for name, value in values:
        if name == ENABLE_PUSH and value > 1:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
        if name == INITIAL_WINDOW_SIZE and value > LARGEST_WINDOW:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large")
        if name == MAX_FRAME_SIZE and not SMALLEST_MAX_FRAME <= value <= LARGEST_MAX_FRAME:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of range")


_GAPS = 64


class StreamIds:
    """The ids of closed streams: how each has ended, to judge late frames on it.

    `last` is the highest id that was opened; ids above `final` are not served. A closed stream
    has ended normally unless it is recorded as reset, or as skipped by the peer. At most
    `by_server` ids that the server has reset are recorded (as many as may be open at once, since
    frames on all of these may be in flight), and `by_peer` that the peer has.
    """

    def __init__(self, by_server: int, by_peer: int) -> None:
        self.last = 0
        self.final = LARGEST_ID
        self._most_by_server, self._most_by_peer = by_server, by_peer
        self._reset_by_server: dict[int, None] = {}
        self._reset_by_peer: dict[int, None] = {}
        self._gaps: deque[range] = deque(maxlen=_GAPS)

    def open(self, stream_id: int) -> None:
        """Record a new stream, whose id is above all others."""
        if stream_id > self.last + 2:
            self._gaps.append(range(self.last + 1, stream_id))
        self.last = stream_id

    def reset(self, stream_id: int, *, by_server: bool) -> None:
        """Record a stream that was reset."""
        recorded, most = self._reset_by_peer, self._most_by_peer
        if by_server:
            recorded, most = self._reset_by_server, self._most_by_server
        recorded[stream_id] = None
        if len(recorded) > most:
            del recorded[next(iter(recorded))]

    def check_opened(self, stream_id: int) -> None:
        """Raise unless the stream was opened at some time."""
        if not stream_id or stream_id > self.last or not stream_id & 1:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "frame on a stream that is idle")

    def check_gone(self, stream_id: int) -> None:
        """Judge DATA or HEADERS on a closed stream: raise, or return if they are to be ignored."""
        self.check_opened(stream_id)
        if stream_id in self._reset_by_server:
            return
        if stream_id in self._reset_by_peer:
            raise StreamError(stream_id, ErrorCode.STREAM_CLOSED, "frame after RST_STREAM")
        if any(stream_id in gap for gap in self._gaps):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "stream id lower than one before")
        raise ProtocolError(ErrorCode.STREAM_CLOSED, "frame after the end of its stream")


_DATA, _HEADERS = 0, 1
_BURST = 1 << 20
"""Bytes to buffer for one write before streams have to queue."""
_FULL = 4 * _BURST
_ENOUGH = 64 << 10
"""Buffered bytes from which a stream that could go on yields to others."""
_WORTH_SPLITTING = 32 << 10
"""Buffered bytes from which large parts are looked for."""
_DEFAULT_WINDOW = 65_535
_SHORT = frames.SMALLEST_MAX_FRAME
"""Bytes of a header block that always fit into one frame."""


class SendBuffer:
    """Frames in order, under the flow control of RFC 9113; streams with queued data take turns.

    `paused` is set while the socket's buffer is full, `sent` counts the bytes of streams that were
    taken for writing. `on_stream_sent` is called with a stream whose last frame is buffered.
    `splits` is true if the socket writes several parts without copying them.
    """

    splits = True

    def __init__(self, limits: Limits, on_stream_sent: Callable[[Stream], None]) -> None:
        self.paused = False
        self.window = self.initial_window = _DEFAULT_WINDOW
        self.max_frame = frames.SMALLEST_MAX_FRAME
        self.lowered_table = False
        self.sent = 0
        self._limits = limits
        self._on_stream_sent = on_stream_sent
        self._ready: list[Buffer] = []
        self._size = 0
        self._control = 0
        self._blocked: dict[Stream, None] = {}
        self._starved: dict[Stream, None] = {}
        self._ending: dict[Stream, bytes] = {}

    def __bool__(self) -> bool:
        """Whether frames are ready to be written."""
        return bool(self._ready)

    @property
    def congested(self) -> bool:
        """Whether streams have to queue until the socket is written."""
        return self.paused or self._size >= _BURST

    @property
    def full(self) -> bool:
        """Whether the peer reads so slowly that even response headers pile up."""
        return self._size >= _FULL

    def take_ready(self) -> list[Buffer]:
        """Remove and return the frames that are ready to be written, with small parts joined."""
        ready, self._ready = self._ready, []
        splits = self.splits and self._size + self._control >= _WORTH_SPLITTING
        self.sent += self._size
        self._size = self._control = 0
        return join_small(ready) if splits else [b"".join(ready)]

    # -- connection -------------------------------------------------------------------------

    def queue(self, data: bytes) -> None:
        """Buffer control frames of the server's own, whose number the peer cannot drive up."""
        self._ready.append(data)

    def queue_reply(self, data: bytes) -> None:
        """Buffer a reply to a control frame; raises if the peer causes many and reads none."""
        self._ready.append(data)
        self._control += len(data)
        if self._control > self._limits.max_unsent_control:
            self._control = -self._control  # the GOAWAY still has to be sent
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "answers to the peer pile up")

    def widen(self, increment: int) -> None:
        """Widen the connection's send window: WINDOW_UPDATE on stream 0."""
        self.window += increment
        if self.window > LARGEST_WINDOW:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "window of the connection overflows")

    def widen_stream(self, stream: Stream, increment: int) -> None:
        """Widen a stream's send window; narrow it for a negative increment (from SETTINGS)."""
        stream.window += increment
        if stream.window > LARGEST_WINDOW:
            raise StreamError(stream.id, ErrorCode.FLOW_CONTROL_ERROR, "window overflows")
        if stream.waiting_size and stream.window > 0:
            self._blocked[stream] = None

    # -- streams ----------------------------------------------------------------------------

    def send_headers(self, stream: Stream, block: bytes) -> None:
        """Send the header block of a response."""
        stream.answered = True
        self._append(self._header_frames(stream, block, end_stream=False))

    def send_body(self, stream: Stream, parts: Sequence[Buffer], size: int) -> None:
        """Send `size` bytes of a response, or queue them; the parts must not change any more."""
        if not self._fits(stream, size):
            self._wait(stream, parts, size)
            return
        stream.window -= size
        self.window -= size
        self._size += size
        self._ready.append(HEADER.pack(size >> 16, size & 0xFFFF, _DATA, 0, stream.id))
        self._ready += parts

    def respond(
        self, stream: Stream, begin: bytes, parts: Sequence[Buffer], size: int, end: bytes
    ) -> None:
        """Send a whole response: header block, body, and trailers."""
        if self.lowered_table or max(len(begin), len(end)) > _SHORT or not self._fits(stream, size):
            self.send_headers(stream, begin)
            self.send_body(stream, parts, size)
            self.finish(stream, end)
            return
        stream.answered = stream.finished = True
        self.window -= size
        self._size += size + len(begin) + len(end)
        pack, number = HEADER.pack, stream.id
        self._ready += (
            pack(0, len(begin), _HEADERS, END_HEADERS, number),
            begin,
            pack(size >> 16, size & 0xFFFF, _DATA, 0, number),
            *parts,
            pack(0, len(end), _HEADERS, END_HEADERS | END_STREAM, number),
            end,
        )
        self._on_stream_sent(stream)

    def respond_without_trailers(self, stream: Stream, block: bytes, body: bytes) -> None:
        """Send a plain HTTP response, without trailers."""
        if not body:
            self.finish(stream, block)
            return
        self.send_headers(stream, block)
        self.send_body(stream, [body], len(body))
        self.finish(stream, b"")

    def _fits(self, stream: Stream, size: int) -> bool:
        """Whether `size` bytes of a stream may be sent now, in one frame."""
        return (
            size <= stream.window
            and size <= self.window
            and size <= self.max_frame
            and not stream.waiting_size
            and not self.paused
            and self._size < _BURST
        )

    def finish(self, stream: Stream, trailers: bytes) -> None:
        """End a response with trailers, which hold all of its headers if none were sent before."""
        stream.finished = True
        if stream.waiting_size:
            stream.trailers = trailers
        elif self.congested:
            self._ending[stream] = trailers
        else:
            self._end(stream, trailers)

    def discard(self, stream: Stream) -> None:
        """Discard the queued data of a stream."""
        stream.waiting = stream.trailers = None
        stream.waiting_size = 0
        self._blocked.pop(stream, None)
        self._starved.pop(stream, None)
        self._ending.pop(stream, None)

    def writable(self, stream: Stream) -> bool:
        """Whether more data of a stream would be sent at once."""
        return not (stream.waiting_size or self.paused or self._size >= _ENOUGH)

    def notify_when_writable(self, stream: Stream) -> None:
        """Call `on_writable` once `writable` is true again."""
        if not stream.waiting_size:
            self._starved[stream] = None

    def pump(self) -> None:
        """Send queued data as far as windows and socket allow; streams take turns."""
        ending, blocked = self._ending, self._blocked
        while ending and not self.congested:  # trailers need no window
            stream = next(iter(ending))
            self._end(stream, ending.pop(stream))
        while blocked and not self.congested:
            stream = next(iter(blocked))
            if stream.waiting_size and self.window <= 0:
                break
            del blocked[stream]
            self._go_on(stream)
        if self._starved and not self.congested:
            starved, self._starved = self._starved, {}
            for stream in starved:
                stream.on_writable()

    def _go_on(self, stream: Stream) -> None:
        if stream.waiting_size and stream.window > 0:
            self._send_waiting(stream)
        if stream.waiting_size:
            if stream.window > 0:
                self._blocked[stream] = None
        elif stream.trailers is not None:
            self._end(stream, stream.trailers)
        else:
            stream.on_writable()

    def _wait(self, stream: Stream, parts: Sequence[Buffer], size: int) -> None:
        if stream.waiting is None:
            stream.waiting = deque()
        stream.waiting += parts
        stream.waiting_size += size
        if stream.window > 0:
            self._blocked[stream] = None
            self.pump()

    def _send_waiting(self, stream: Stream) -> None:
        """Send a frame of the queued data; more frames if no other stream has queued data."""
        waiting = stream.waiting
        assert waiting is not None
        most = self.max_frame if self._blocked else max(_BURST - self._size, self.max_frame)
        left = min(stream.waiting_size, stream.window, self.window, most)
        stream.window -= left
        self.window -= left
        self._size += left
        stream.waiting_size -= left
        ready, number, largest = self._ready, stream.id, self.max_frame
        whole = HEADER.pack(largest >> 16, largest & 0xFFFF, _DATA, 0, number)
        view, at, end = memoryview(b""), 0, 0
        while left:
            while left >= largest and end - at >= largest:  # as nearly all of a large part
                ready += (whole, view[at : at + largest])
                at += largest
                left -= largest
            size = min(left, largest)
            left -= size
            if size:
                ready.append(HEADER.pack(size >> 16, size & 0xFFFF, _DATA, 0, number))
            while size:
                if at == end:
                    view = memoryview(waiting.popleft())
                    at, end = 0, len(view)
                step = min(size, end - at)
                ready.append(view[at : at + step])
                at += step
                size -= step
        if at < end:
            waiting.appendleft(view[at:])

    def _end(self, stream: Stream, trailers: bytes) -> None:
        if trailers:
            self._append(self._header_frames(stream, trailers, end_stream=True))
        else:
            self._append(frames.frame(_DATA, END_STREAM, stream.id))
        stream.trailers = None
        self._on_stream_sent(stream)

    def _header_frames(self, stream: Stream, block: bytes, *, end_stream: bool) -> bytes:
        if self.lowered_table:
            self.lowered_table = False
            block = SIZE_UPDATE + block
        size = len(block)
        if size > self.max_frame:
            return frames.headers(stream.id, block, self.max_frame, end_stream=end_stream)
        flags = END_HEADERS | END_STREAM if end_stream else END_HEADERS
        return HEADER.pack(size >> 16, size & 0xFFFF, _HEADERS, flags, stream.id) + block

    def _append(self, data: bytes) -> None:
        self._ready.append(data)
        self._size += len(data)
