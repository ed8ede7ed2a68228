"""The load of a process: one loop that sends requests, reads what comes and keeps the times."""

from __future__ import annotations

import random
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count

from penstock_client.perf.load.job import (
    CUT_OFF,
    OK,
    Chunk,
    ClosedLoop,
    Job,
    Message,
    OpenLoop,
)
from penstock_client.perf.load.pool import RETRY_SECONDS, Pool
from penstock_client.perf.load.record import Record
from penstock_client.perf.load.slots import Slots
from penstock_client.perf.wire.call import Call, Wire

_CHUNK_SECONDS = 0.2
_FIRST = 4  # connections of an open loop, which opens more when it needs them
_MOST_AT_ONCE = 64  # requests that are sent before what came is read
_GONE_SECONDS = 3.0  # a server that takes no connection for so long does not come back
_FINE = 2e-3  # seconds; shorter waits want a finer clock than epoll's


class Worker:
    """The load of one process, from its connections to its last chunk.

    `tell` takes what is told of it; the end of what `parent` is the descriptor of ends the load.
    """

    def __init__(self, job: Job, tell: Callable[[Message], None], parent: int) -> None:
        self._job = job
        self._tell = tell
        self._parent = parent
        self._poll = select.epoll()
        self._pool = Pool(job.endpoint, job.http, job.connections, self, self._poll)
        self._record = Record()
        self._slots = Slots(job)
        self._streamed = job.streamed
        self._closed = isinstance(job.shape, ClosedLoop)
        self._in_flight = 0
        self._waiting: deque[tuple[int, float]] = deque()  # slots and when they were due
        self._free: list[int] = []
        self._sent = 0
        self._most = job.requests or sys.maxsize
        self._longest = job.timeout or float("inf")
        self._stop_at = 0.0
        self._retry_at = 0.0
        self._gone_since = 0.0
        self._arrivals: Iterator[float] = iter(())
        self._due = float("inf")
        self.problem = ""

    def connect(self) -> None:
        """Open the connections that the load begins with; raises `OSError`."""
        shape = self._job.shape
        self._pool.fill(shape.slots if isinstance(shape, ClosedLoop) else _FIRST)

    def run(self, start: float) -> None:
        """Put the load on from `start` on, to its end."""
        self._poll.register(self._parent, select.EPOLLIN)
        while (now := time.perf_counter()) < start:
            time.sleep(min(0.05, start - now))
        self._stop_at = start + self._job.seconds
        self._begin(start)
        chunk_at = start + _CHUNK_SECONDS
        now = time.perf_counter()
        self._send_due(now)
        while not self._is_over(now):
            self._wait(now, chunk_at)
            now = time.perf_counter()
            if self._waiting or self._due <= now:
                self._send_due(now)
            if now >= chunk_at:
                chunk_at = now + _CHUNK_SECONDS
                self._serve_ready(0.0)  # the parent, if all others are read without asking
                self._expire(now)
                self._tell(self._chunk())
        self._note_gone()
        self._cut_off()
        self._tell(self._chunk())

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()
        self._poll.close()

    # -- what is sent when -------------------------------------------------------------------------

    def _begin(self, start: float) -> None:
        shape = self._job.shape
        if isinstance(shape, ClosedLoop):
            for slot in range(shape.slots):
                self._waiting.append((slot, start))
            return
        self._free = list(range(shape.most_in_flight - 1, -1, -1))
        self._arrivals = arrivals(shape, start)
        self._due = next(self._arrivals, float("inf"))

    def _send_due(self, now: float) -> None:
        """Send what is due, as far as there are slots and connections."""
        self._take_due(min(now, self._stop_at), _MOST_AT_ONCE)
        self._send_waiting(now)

    def _take_due(self, until: float, most: float = float("inf")) -> None:
        """Let what is due before a time wait to be sent."""
        count = 0
        while self._due < until and count < most:
            self._waiting.append((-1, self._due))
            self._due = next(self._arrivals, float("inf"))
            count += 1

    def _send_waiting(self, now: float) -> None:
        started: dict[Wire, None] = {}
        while self._waiting and now >= self._retry_at:
            wire = self._wire_for_next(now)
            if wire is None:
                break
            slot, due = self._waiting.popleft()
            started[wire] = None
            self._send(wire, slot if slot >= 0 else self._free.pop(), due)
        for wire in started:
            wire.flush()

    def _wire_for_next(self, now: float) -> Wire | None:
        """A connection for the first that waits, if there is one and it need not wait on."""
        if self._sent >= self._most or now >= self._stop_at + self._grace():
            self._forget_waiting(now)
            return None
        if self._waiting[0][0] < 0 and not self._free:
            return None
        wire = self._pool.take()
        if wire is None:
            self._note_refusal(now)
        return wire

    def _forget_waiting(self, now: float) -> None:
        """Give up what was not sent; of an open loop it counts, as it was due."""
        for slot, due in self._waiting:
            if slot < 0:
                self._record.end(Call(0, slot, due, 0.0, streamed=False), now, CUT_OFF)
        self._waiting.clear()

    def _grace(self) -> float:
        """Seconds behind the end in which requests of an open loop that were due are still sent."""
        return 0.0 if self._closed else self._job.drain

    def _send(self, wire: Wire, slot: int, due: float) -> None:
        """Start a request, which the connection's next `flush` sends."""
        self._sent += 1
        self._in_flight += 1
        self._gone_since = 0.0
        number, request = self._slots.next(slot)
        call = Call(number, slot, due, time.perf_counter(), self._streamed, wire)
        wire.start(call, request)

    def _note_refusal(self, now: float) -> None:
        """There is no connection: all are in use, or the server takes none."""
        if not self._pool.problem or self._pool.wires:
            return
        self._retry_at = now + RETRY_SECONDS
        self._gone_since = self._gone_since or now
        if now - self._gone_since > _GONE_SECONDS:
            self.problem = self._gone()

    def _gone(self) -> str:
        """Which server is gone: of two that are compared each has a load."""
        return f"the server at {self._job.endpoint.authority} is gone: {self._pool.problem}"

    def _note_gone(self) -> None:
        """At the end: the server has taken no connection since some time, however short."""
        if self._gone_since and not self._pool.wires and not self.problem:
            self.problem = self._gone()

    # -- what comes --------------------------------------------------------------------------------

    def on_response(self, call: Call, now: float) -> None:
        """A response has come."""
        if call.responses:
            self._record.between += (call.last, now)
        else:
            call.first = now
        call.last = now
        call.responses += 1

    def on_end(self, call: Call, now: float, error: str) -> None:
        """A request has ended: its slot sends the next, on the same connection if it can."""
        self._in_flight -= 1
        outcome = OK
        if not error and now - call.start > self._longest:
            error = self._no_answer()  # it came before this looked for those that take too long
        if error or not call.responses:
            outcome = self._record.outcome(error or "the call ended without a response")
        self._record.end(call, now, outcome)
        wire: Wire = call.wire
        further = now < self._stop_at and self._sent < self._most and not self._waiting
        if further and self._closed and wire.room > 0:
            self._send(wire, call.slot, now)  # the caller that reads the connection flushes it
            return
        self._pool.give_back(wire)
        self._go_on(call.slot, now)

    def on_lost(self, wire: Wire, reason: str) -> None:
        """A connection is gone."""
        self._pool.drop(wire)

    def _goes_on(self, now: float) -> bool:
        """Whether slots send their next requests."""
        return now < self._stop_at and self._sent < self._most

    def _go_on(self, slot: int, now: float) -> None:
        if not self._closed:
            self._free.append(slot)
        elif self._goes_on(now):
            wire = None if self._waiting else self._pool.take()
            if wire is not None:
                self._send(wire, slot, now)
                wire.flush()
            else:
                self._waiting.append((slot, now))

    def _wait(self, now: float, chunk_at: float) -> None:
        """Wait for what comes, or until something is due."""
        only = self._pool.only
        if self._closed and not self._waiting and only is not None and not only.transport.blocked:
            self._read(only, min(chunk_at, self._stop_at))
            return
        until = min(self._due, chunk_at) - now
        if self._waiting:
            until = min(until, max(0.0, self._retry_at - now) or RETRY_SECONDS)
        if 0 < until < _FINE:
            select.select([self._poll], [], [], until)
            until = 0.0
        self._serve_ready(max(0.0, until))

    def _read(self, only: Wire, until: float) -> None:
        """Read the only connection, waiting, as long as nothing else is to be done."""
        transport, more = only.transport, True
        while more:
            only.read(wait=True)
            more = self._in_flight > 0 and not self._waiting and not transport.blocked
            more = more and self._pool.only is only and time.perf_counter() < until

    def _serve_ready(self, seconds: float) -> None:
        """Serve connections that are ready, or will be in so many seconds."""
        for number, events in self._poll.poll(seconds):
            wire = self._pool.wires.get(number)
            if wire is not None:
                self._serve(number, wire, events)
            elif number == self._parent:
                self._poll.unregister(number)
                self._stop_at = time.perf_counter()

    def _serve(self, number: int, wire: Wire, events: int) -> None:
        """Send and read what a connection has room for and has."""
        if events & select.EPOLLOUT:
            wire.transport.flush()
            if not wire.transport.blocked:
                self._poll.modify(number, select.EPOLLIN)
        if events & ~select.EPOLLOUT:
            wire.read()

    # -- the end -----------------------------------------------------------------------------------

    def _is_over(self, now: float) -> bool:
        if self.problem:
            return True
        some = self._in_flight > 0 or bool(self._waiting)
        if self._goes_on(now):
            return not some and self._due == float("inf")
        return not some or now >= self._stop_at + self._job.drain

    def _expire(self, now: float) -> None:
        """Give up requests that have taken too long."""
        for wire in list(self._pool.wires.values()):
            for call in wire.under_way:
                if now - call.start > self._longest:
                    wire.cancel(call)
                    self.on_end(call, now, self._no_answer())
            wire.flush()

    def _no_answer(self) -> str:
        return f"no answer within {self._job.timeout:g} s"

    def _cut_off(self) -> None:
        """Give up what is under way; it counts neither as answered nor as failed."""
        now = time.perf_counter()
        for wire in list(self._pool.wires.values()):
            for call in wire.under_way:
                wire.cancel(call)
                self._record.end(call, now, CUT_OFF)
        self._in_flight = 0
        if self._sent < self._most:
            self._take_due(min(now, self._stop_at))
        self._forget_waiting(now)

    def _chunk(self) -> Chunk:
        return self._record.chunk(self._in_flight, len(self._waiting))


def arrivals(shape: OpenLoop, start: float) -> Iterator[float]:
    """Times in order; without an end but for a list of times."""
    if shape.times:
        for turn in count() if shape.period else (0,):
            yield from (start + turn * shape.period + time for time in shape.times)
    elif shape.poisson:
        yield from _poisson(shape, start)
    else:
        gap, number = 1 / shape.rate, 0
        while True:  # by multiplication, so that errors do not add up
            yield start + (number + shape.phase) * gap
            number += 1


def _poisson(shape: OpenLoop, start: float) -> Iterator[float]:
    chance = random.Random(shape.seed)
    due = start
    while True:
        due += chance.expovariate(shape.rate)
        yield due
