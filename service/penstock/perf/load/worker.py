"""A process of the load: one loop that sends requests, reads what comes and keeps the times.

Started as `python -m penstock.perf.load.worker`, with a pickled `Job` on its standard input; tells
`Message`s on its standard output. The end of the input, too, ends the load.
"""

from __future__ import annotations

import gc
import pickle
import select
import signal
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import BinaryIO

from penstock.perf.load.arrivals import arrivals
from penstock.perf.load.job import (
    CUT_OFF,
    OK,
    Chunk,
    ClosedLoop,
    Ended,
    Go,
    Job,
    Message,
    OpenLoop,
    Ready,
)
from penstock.perf.load.pool import RETRY_SECONDS, Pool
from penstock.perf.load.record import Record
from penstock.perf.load.slots import Slots
from penstock.perf.wire.call import Call, Wire

_CHUNK_SECONDS = 0.2
_FIRST = 4  # connections of an open loop, which opens more when it needs them
_MOST_AT_ONCE = 64  # requests that are sent before what came is read
_GONE_SECONDS = 3.0  # a server that takes no connection for so long does not come back
_FINE = 2e-3  # seconds; shorter waits want a finer clock than epoll's
LENGTH = struct.Struct("<Q")
"""In front of each message of a pipe."""


class Worker:
    """The load of one process, from its connections to its last chunk."""

    def __init__(self, job: Job, tell: Callable[[Message], None], parent: int) -> None:
        self._job = job
        self._tell = tell
        self._parent = parent
        self._poll = select.epoll()
        self._pool = Pool(job.endpoint, job.http, job.connections, self, self._poll)
        self._record = Record()
        self._slots = Slots(job)
        self._under_way: dict[Call, None] = {}
        self._waiting: deque[tuple[int, float]] = deque()  # slots and when they were due
        self._free: list[int] = []
        self._sent = 0
        self._most = job.requests or sys.maxsize
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
        while not self._is_over():
            self._wait(chunk_at)
            now = time.perf_counter()
            self._send_due(now)
            if now >= chunk_at:
                chunk_at = now + _CHUNK_SECONDS
                self._expire(now)
                self._tell(self._chunk())
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
        count = 0
        while self._due <= now and self._due < self._stop_at and count < _MOST_AT_ONCE:
            self._waiting.append((-1, self._due))
            self._due = next(self._arrivals, float("inf"))
            count += 1
        self._send_waiting(now)

    def _send_waiting(self, now: float) -> None:
        while self._waiting and now >= self._retry_at:
            slot, due = self._waiting[0]
            if self._sent >= self._most or now >= self._stop_at + self._grace():
                self._forget_waiting(now)
                return
            if slot < 0 and not self._free:
                return
            wire = self._pool.take()
            if wire is None:
                self._note_refusal(now)
                return
            self._waiting.popleft()
            self._send(wire, slot if slot >= 0 else self._free.pop(), due)

    def _forget_waiting(self, now: float) -> None:
        """Give up what was not sent; of an open loop it counts, as it was due."""
        for slot, due in self._waiting:
            if slot < 0:
                self._record.end(Call(0, slot, due, 0.0, streamed=False), now, CUT_OFF)
        self._waiting.clear()

    def _grace(self) -> float:
        """Seconds behind the end in which requests of an open loop that were due are still sent."""
        return self._job.drain if isinstance(self._job.shape, OpenLoop) else 0.0

    def _send(self, wire: Wire, slot: int, due: float) -> None:
        self._sent += 1
        self._gone_since = 0.0
        number, head, body = self._slots.next(slot)
        call = Call(number, slot, due, time.perf_counter(), self._job.streamed)
        call.wire = wire
        self._under_way[call] = None
        wire.start(call, head, body)

    def _note_refusal(self, now: float) -> None:
        """There is no connection: all are in use, or the server takes none."""
        if not self._pool.problem or self._pool.wires:
            return
        self._retry_at = now + RETRY_SECONDS
        self._gone_since = self._gone_since or now
        if now - self._gone_since > _GONE_SECONDS:
            self.problem = f"the server is gone: {self._pool.problem}"

    # -- what comes --------------------------------------------------------------------------------

    def on_response(self, call: Call, now: float) -> None:
        """A response has come."""
        if call.responses:
            self._record.gap(now - call.last, now)
        else:
            call.first = now
        call.last = now
        call.responses += 1

    def on_end(self, call: Call, now: float, error: str) -> None:
        """A request has ended: its slot sends the next."""
        del self._under_way[call]
        outcome = OK
        if error or not call.responses:
            outcome = self._record.outcome(error or "the call ended without a response")
        self._record.end(call, now, outcome)
        self._pool.give_back(call.wire)
        self._go_on(call.slot, now)

    def on_lost(self, wire: Wire, reason: str) -> None:
        """A connection is gone."""
        self._pool.drop(wire)

    def _go_on(self, slot: int, now: float) -> None:
        if isinstance(self._job.shape, OpenLoop):
            self._free.append(slot)
        elif now < self._stop_at and self._sent < self._most:
            wire = None if self._waiting else self._pool.take()
            if wire is not None:
                self._send(wire, slot, now)
            else:
                self._waiting.append((slot, now))

    def _wait(self, chunk_at: float) -> None:
        """Wait for what comes, or until something is due."""
        now = time.perf_counter()
        until = min(self._due, chunk_at) - now
        if self._waiting:
            until = min(until, max(0.0, self._retry_at - now) or RETRY_SECONDS)
        if 0 < until < _FINE:
            select.select([self._poll], [], [], until)
            until = 0.0
        for number, events in self._poll.poll(max(0.0, until)):
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

    def _is_over(self) -> bool:
        if self.problem:
            return True
        now = time.perf_counter()
        if self._sent < self._most and now < self._stop_at and self._more_to_come():
            return False
        return not (self._under_way or self._waiting) or now >= self._stop_at + self._job.drain

    def _more_to_come(self) -> bool:
        return self._due < float("inf") or bool(self._under_way or self._waiting)

    def _expire(self, now: float) -> None:
        """Give up requests that have taken too long."""
        if not self._job.timeout:
            return
        earliest = now - self._job.timeout
        for call in [call for call in self._under_way if call.start < earliest]:
            call.wire.cancel(call)
            self.on_end(call, now, f"no answer within {self._job.timeout:g} s")

    def _cut_off(self) -> None:
        """Give up what is under way; it counts neither as answered nor as failed."""
        now = time.perf_counter()
        for call in list(self._under_way):
            call.wire.cancel(call)
            self._record.end(call, now, CUT_OFF)
        self._under_way.clear()
        self._forget_waiting(now)

    def _chunk(self) -> Chunk:
        return self._record.chunk(len(self._under_way), len(self._waiting))


def write_message(pipe: BinaryIO, message: object) -> None:
    """Send a message through a pipe."""
    data = pickle.dumps(message)
    pipe.write(LENGTH.pack(len(data)) + data)
    pipe.flush()


def read_message(pipe: BinaryIO) -> object:
    """The next message of a pipe; raises `EOFError` at its end."""
    size = pipe.read(LENGTH.size)
    if len(size) < LENGTH.size:
        raise EOFError
    data = pipe.read(LENGTH.unpack(size)[0])
    return pickle.loads(data)


def main() -> None:
    """The process: connect, wait for the start, put the load on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this ends it
    job = read_message(sys.stdin.buffer)
    assert isinstance(job, Job)

    def tell(message: Message) -> None:
        write_message(sys.stdout.buffer, message)

    worker = Worker(job, tell, sys.stdin.fileno())
    try:
        worker.connect()
    except OSError as error:
        tell(Ready(error.strerror or str(error)))
        return
    tell(Ready())
    start = read_message(sys.stdin.buffer)
    assert isinstance(start, Go)
    # What is kept is kept by arrays: there is little garbage with rings, and looking takes time.
    gc.collect()
    gc.freeze()
    gc.disable()
    worker.run(start)
    worker.close()
    tell(Ended(worker.problem))


if __name__ == "__main__":
    try:
        main()
    except (EOFError, BrokenPipeError):
        sys.exit(1)  # who started this is gone
