"""Our connection and one of the `h2` library talk, in any order and any pieces."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import pytest
from h2.settings import SettingCodes
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harness.examples import examples
from http2.peer import Recorder, Server
from penstock.http2.frames import ErrorCode, Limits

pytestmark = pytest.mark.interpreted("its streams derive from a class that would be compiled")

LIMITS = Limits(max_frame_size=1 << 14, stream_window=20_000, connection_window=80_000)
HEAD = [(":method", "POST"), (":scheme", "http"), (":path", "/a/b"), (":authority", "here")]
BLOCK = b"\x88"
TRAILERS = b"\x00\x01t\x01v"
SIZES = st.integers(0, 40_000)


class Talk(RuleBasedStateMachine):
    """A client of `h2` opens streams and sends; our server answers. Nothing may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server(LIMITS)
        self.client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.client.initiate_connection()
        self.sent: dict[int, bytearray] = defaultdict(bytearray)
        self.answers: dict[int, bytearray] = defaultdict(bytearray)
        self.heard: dict[int, bytearray] = defaultdict(bytearray)
        self.sending: set[int] = set()  # the client may still send
        self.answering: set[int] = set()  # the server may still answer
        self.reset: set[int] = set()
        self.complete: set[int] = set()
        self.trailers: set[int] = set()
        # `h2` takes the acknowledgement of its first settings for one of settings sent since.
        self.exchange(60_000)

    # -- what the client does -----------------------------------------------------------------

    @rule(cookie=st.text("abc", max_size=3), ends=st.booleans())
    def open(self, cookie: str, ends: bool) -> None:
        if len(self.answering) >= 20:
            return
        stream_id = self.client.get_next_available_stream_id()
        self.client.send_headers(stream_id, [*HEAD, ("x-cookie", cookie)], end_stream=ends)
        self.answering.add(stream_id)
        if not ends:
            self.sending.add(stream_id)

    @precondition(lambda self: self.sending)
    @rule(
        pick=st.randoms(use_true_random=False),
        size=SIZES,
        ends=st.booleans(),
        padding=st.booleans(),
    )
    def send(self, pick: Any, size: int, ends: bool, padding: bool) -> None:
        stream_id = pick.choice(sorted(self.sending))
        extra = 10 if padding else 0
        room = self.client.local_flow_control_window(stream_id) - extra - 1
        size = min(size, room, self.client.max_outbound_frame_size - extra - 1)
        if size < 0:
            return
        chunk = bytes([stream_id % 251]) * size
        self.client.send_data(stream_id, chunk, end_stream=ends, pad_length=extra or None)
        self.sent[stream_id] += chunk
        if ends:
            self.sending.discard(stream_id)

    @precondition(lambda self: self.answering)
    @rule(pick=st.randoms(use_true_random=False))
    def cancel(self, pick: Any) -> None:
        stream_id = pick.choice(sorted(self.answering))
        try:
            self.client.reset_stream(stream_id, ErrorCode.CANCEL)
        except h2.exceptions.StreamClosedError:
            return
        self._forget(stream_id)

    @rule(
        window=st.sampled_from([0, 1, 100, 65_535, 200_000]), table=st.sampled_from([0, 64, 4096])
    )
    def change_settings(self, window: int, table: int) -> None:
        self.client.update_settings(
            {SettingCodes.INITIAL_WINDOW_SIZE: window, SettingCodes.HEADER_TABLE_SIZE: table}
        )

    @rule()
    def ping(self) -> None:
        self.client.ping(b"01234567")

    # -- what the server does -----------------------------------------------------------------

    @precondition(lambda self: self._answerable())
    @rule(pick=st.randoms(use_true_random=False), size=SIZES, ends=st.booleans())
    def answer(self, pick: Any, size: int, ends: bool) -> None:
        stream = pick.choice(self._answerable())
        send_buffer = self.server.connection.send_buffer
        if not stream.answered:
            send_buffer.send_headers(stream, BLOCK)
        chunk = bytes([stream.id % 241]) * size
        self.answers[stream.id] += chunk
        if size:
            send_buffer.send_body(stream, [chunk[: size // 2], chunk[size // 2 :]], size)
        if ends:
            send_buffer.finish(stream, TRAILERS)

    @precondition(lambda self: self._answerable())
    @rule(pick=st.randoms(use_true_random=False), greedy=st.booleans())
    def use(self, pick: Any, greedy: bool) -> None:
        """Take what has come, or stop taking."""
        stream = pick.choice(self._answerable())
        stream.greedy = greedy
        stream.use()

    @rule(paused=st.booleans())
    def socket(self, paused: bool) -> None:
        self.server.connection.send_buffer.paused = paused
        self.server.connection.send_buffer.pump()

    # -- the wire -----------------------------------------------------------------------------

    @rule(cut=st.integers(1, 60_000))
    def exchange(self, cut: int) -> None:
        data = self.client.data_to_send()
        for at in range(0, len(data), cut):
            self.server.receive(data[at : at + cut])
        self.server.write()
        written, self.server.written = bytes(self.server.written), bytearray()
        for at in range(0, len(written), cut):
            for event in self.client.receive_data(written[at : at + cut]):
                self._hear(event)

    def _hear(self, event: Any) -> None:
        if isinstance(event, h2.events.DataReceived):
            self.heard[event.stream_id] += event.data
            self.client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.TrailersReceived):
            self.trailers.add(event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self.complete.add(event.stream_id)
            self.answering.discard(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            assert event.error_code == ErrorCode.NO_ERROR
            self.sending.discard(event.stream_id)

    def _forget(self, stream_id: int) -> None:
        self.reset.add(stream_id)
        self.answering.discard(stream_id)
        self.sending.discard(stream_id)

    def _answerable(self) -> list[Recorder]:
        streams = self.server.opened.values()
        return [stream for stream in streams if not stream.finished and not stream.closed]

    # -- what always holds --------------------------------------------------------------------

    @invariant()
    def nobody_leaves(self) -> None:
        assert not self.server.connection.closing

    @invariant()
    def what_is_heard_was_said(self) -> None:
        for stream_id, heard in self.heard.items():
            assert self.answers[stream_id].startswith(heard)
        for stream_id, stream in self.server.opened.items():
            assert self.sent[stream_id].startswith(stream.data)

    def teardown(self) -> None:
        """In the end everybody takes everything, and nothing is left."""
        self.socket(False)
        self.change_settings(200_000, 4096)
        for _ in range(30):
            for stream in self._answerable():
                stream.greedy = True
                stream.use()
            self.exchange(60_000)
        for stream in self._answerable():
            self.answer_all(stream)
        for _ in range(30):
            self.exchange(60_000)
        assert not self.server.connection.streams
        for stream_id in self.complete - self.reset:
            assert self.heard[stream_id] == self.answers[stream_id]
        self.what_is_heard_was_said()

    def answer_all(self, stream: Recorder) -> None:
        send_buffer = self.server.connection.send_buffer
        if not stream.answered:
            send_buffer.send_headers(stream, BLOCK)
        send_buffer.finish(stream, TRAILERS)


Talk.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestTalk = Talk.TestCase
