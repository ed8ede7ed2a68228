"""The client: what it does next is chance, what it may do is not."""

from __future__ import annotations

import random
from collections.abc import Callable

from hpack import Encoder, HeaderTuple, NeverIndexedHeaderTuple

from http2.honest.calls import Call, make
from http2.honest.heard import INITIAL_WINDOW, MAX_FRAME, Answer, Heard
from penstock.http2 import frames
from penstock.http2.frames import (
    END_HEADERS,
    END_STREAM,
    LARGEST_WINDOW,
    PADDED,
    PRIORITY,
    ErrorCode,
    FrameType,
)

_AT_ONCE = 8
_TABLE = 4096


class Client:
    """Says what it does by `step`; what it hears lies in `heard`.

    `calls` are those that are to be answered; those that it gave up are forgotten.
    """

    def __init__(self, chance: random.Random) -> None:
        self.calls: dict[int, Call] = {}
        self.heard = Heard()
        self._chance = chance
        self._encoder = Encoder()
        self._next = 1
        self._acked = 0
        self._steps: tuple[Callable[[], bytes], ...] = (
            *(self._open,) * 3,
            *(self._go_on,) * 8,
            *(self._widen,) * 4,
            self._settings,
            self._give_up,
            self._ping,
        )

    def begin(self) -> bytes:
        self.heard.asked.append({})
        return frames.PREFACE + frames.settings([])

    def step(self) -> bytes:
        """A few frames, or none."""
        return self._acks() + self._chance.choice(self._steps)()

    def finish(self) -> bytes:
        """Send what is missing: credit for responses, and request data within the window."""
        said = self._acks()
        if self.heard.window < 1 << 24:
            said += self._widened(0, 1 << 25)
        for stream_id, answer in self.heard.answers.items():
            if stream_id in self.calls and not answer.ended and answer.window < 1 << 24:
                said += self._widened(stream_id, 1 << 25)
        for stream_id in self._unsaid():
            said += self._say(stream_id)
        return said

    def done(self) -> bool:
        """Whether all responses are complete; calls above the GOAWAY's id do not count."""
        heard = self.heard
        self.calls = {number: call for number, call in self.calls.items() if number <= heard.last}
        return all(heard.answers[number].ended for number in self.calls)

    # -- calls --------------------------------------------------------------------------------

    def _open(self) -> bytes:
        heard = self.heard
        if heard.leaving:
            return b""
        under_way = [n for n, answer in heard.answers.items() if not (answer.ended or answer.reset)]
        if len(under_way) >= _AT_ONCE:
            return b""
        call, stream_id = make(self._chance), self._next
        self._next += self._chance.choice((2, 2, 2, 4))
        self.calls[stream_id] = call
        heard.answers[stream_id] = Answer(heard.initial)
        heard.credit.streams[stream_id] = heard.credit.initial
        said = self._headers(stream_id, call.fields, ends=False)
        return said + (self._say(stream_id) if self._chance.random() < 0.5 else b"")

    def _unsaid(self) -> list[int]:
        return [
            number
            for number, call in self.calls.items()
            if not (call.ended or self.heard.answers[number].reset is not None)
        ]

    def _go_on(self) -> bytes:
        unsaid = self._unsaid()
        return self._say(self._chance.choice(unsaid)) if unsaid else b""

    def _say(self, stream_id: int) -> bytes:
        """A piece of a request, or its end."""
        call, chance = self.calls[stream_id], self._chance
        if not call.left:
            call.ended = True
            if chance.random() < 0.5:
                return self._headers(stream_id, [(b"x-trailer", b"t")], ends=True)
            return frames.frame(FrameType.DATA, END_STREAM, stream_id)
        padding = chance.choice((0, 0, 0, 1, 200))
        room = self.heard.credit.of(stream_id) - padding - 1
        size = min(len(call.left), room, chance.choice((1, 2, 4, 5, 6, 7, 300, 16_000)))
        if size <= 0:
            return b""
        payload, call.left, flags = call.left[:size], call.left[size:], 0
        if padding:
            payload, flags = bytes((padding,)) + payload + bytes(padding), PADDED
        if not call.left and chance.random() < 0.5:
            call.ended, flags = True, flags | END_STREAM
        self.heard.credit.took(stream_id, len(payload))
        return frames.frame(FrameType.DATA, flags, stream_id, payload)

    def _give_up(self) -> bytes:
        """A call whose answer has not come whole is not wanted any more."""
        under_way = [n for n in self.calls if not self.heard.answers[n].ended]
        if not under_way or self._chance.random() < 0.5:
            return b""
        stream_id = self._chance.choice(under_way)
        del self.calls[stream_id]
        self.heard.answers[stream_id].reset = ErrorCode.CANCEL
        return frames.rst_stream(stream_id, ErrorCode.CANCEL)

    def _headers(self, stream_id: int, fields: list[tuple[bytes, bytes]], *, ends: bool) -> bytes:
        """A header block, by whatever means header compression has."""
        chance, encoder = self._chance, self._encoder
        if chance.random() < 0.1:
            encoder.header_table_size = chance.choice((0, 40, 100, 300, _TABLE))
        kinds = (HeaderTuple, HeaderTuple, HeaderTuple, NeverIndexedHeaderTuple)
        block = encoder.encode(
            [chance.choice(kinds)(*field) for field in fields], huffman=chance.random() < 0.5
        )
        cut = chance.choice((len(block), len(block), chance.randrange(len(block) + 1)))
        first, rest, flags = block[:cut], block[cut:], END_STREAM if ends else 0
        if chance.random() < 0.2:
            first, flags = bytes((0, 0, 0, 0, 7)) + first, flags | PRIORITY
        if chance.random() < 0.2:
            first, flags = bytes((3,)) + first + bytes(3), flags | PADDED
        if not rest:
            return frames.frame(FrameType.HEADERS, flags | END_HEADERS, stream_id, first)
        said = frames.frame(FrameType.HEADERS, flags, stream_id, first)
        return said + frames.frame(FrameType.CONTINUATION, END_HEADERS, stream_id, rest)

    # -- the connection -----------------------------------------------------------------------

    def _acks(self) -> bytes:
        heard = self.heard
        said = frames.settings_ack() * (heard.acks - self._acked)
        said += b"".join(frames.ping(pong, ack=True) for pong in heard.pongs)
        heard.pongs.clear()
        self._acked = heard.acks
        return said

    def _widen(self) -> bytes:
        """Room for little of an answer, or for much."""
        chance = self._chance
        answers = self.heard.answers
        under_way = [0, *(n for n in self.calls if not answers[n].ended)]
        return self._widened(chance.choice(under_way), chance.choice((1, 5, 100, 5000, 100_000)))

    def _widened(self, stream_id: int, increment: int) -> bytes:
        heard = self.heard
        if not stream_id:
            heard.window += increment
        else:
            answer = heard.answers[stream_id]
            if answer.window + increment > LARGEST_WINDOW // 2:
                return b""
            answer.window += increment
        return frames.window_update(stream_id, increment)

    def _settings(self) -> bytes:
        chance = self._chance
        values = {}
        if chance.random() < 0.7:
            values[INITIAL_WINDOW] = chance.choice((0, 1, 100, 5000, 65_535))
        if chance.random() < 0.3:
            values[MAX_FRAME] = chance.choice((1 << 14, 20_000, 1 << 20))
        if chance.random() < 0.3:
            values[1] = chance.choice((0, 100, 4096))
        self.heard.asked.append(values)
        return frames.settings(list(values.items()))

    def _ping(self) -> bytes:
        """A ping, as clients send to measure the bytes in flight."""
        if not self.heard.may_ping:
            return b""
        self.heard.pinged()
        return frames.ping(b"12345678")
