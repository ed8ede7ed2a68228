"""`Line`: a connection that sends what no server wants, and `drive`, which lets many run."""

from __future__ import annotations

import select
import socket
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence

_AT_ONCE = 1 << 18  # bytes
_TURN = 0.01  # seconds
_SHOWN = 3  # of the answers that differ
LEFT = "left"
"""The answer of a client that left, as it meant to, before the server said anything."""
CLOSED = "closed"
NO_ANSWER = "no answer"


class Line(ABC):
    """A connection; `answers` are the statuses and texts that came, one a call.

    One that never ends its request waits `patience` seconds for an answer, and then leaves.
    """

    def __init__(self, port: int, calls: int, patience: float | None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.answers: list[str] = []
        self._calls = calls
        self._patience = patience
        self._all_sent: float | None = None
        self._out = bytearray()

    @property
    def done(self) -> bool:
        """Whether nothing more comes, or is waited for."""
        return len(self.answers) >= self._calls

    def turn(self, now: float, *, readable: bool, writable: bool) -> None:
        """Send and read what can be."""
        try:
            if readable:
                self._read()
            if writable and self._out:
                del self._out[: self.socket.send(memoryview(self._out)[:_AT_ONCE])]
        except BlockingIOError:
            return
        except OSError:
            self._end(CLOSED)
            return
        self._leave_in_time(now)

    def wants_to_send(self, now: float) -> bool:
        """Whether there is something that may be sent now."""
        if len(self._out) < _AT_ONCE:
            self._out += self._next(now)
        return bool(self._out)

    def give_up(self) -> None:
        """The time is up: what was not answered will not be."""
        self._end(NO_ANSWER)
        self.socket.close()

    def _leave_in_time(self, now: float) -> None:
        if self._patience is None or self._out or not self._sent_all:
            return
        self._all_sent = self._all_sent or now
        if now - self._all_sent >= self._patience:
            self._end(LEFT)

    def _end(self, answer: str) -> None:
        self.answers += [answer] * (self._calls - len(self.answers))

    def _read(self) -> None:
        received = self.socket.recv(_AT_ONCE)
        if received:
            self._take(received)
        else:
            self._end(CLOSED)

    @property
    @abstractmethod
    def _sent_all(self) -> bool:
        """Whether the request has left, as far as it ever will."""

    @abstractmethod
    def _next(self, now: float) -> bytes:
        """Bytes that may be sent now."""

    @abstractmethod
    def _take(self, received: bytes) -> None:
        """Read what has come, and note answers."""


def drive(lines: Sequence[Line], seconds: float) -> list[str]:
    """Let the lines run until all are answered or the time is up; their answers."""
    end = time.monotonic() + seconds
    while (open_lines := [line for line in lines if not line.done]) and time.monotonic() < end:
        now = time.monotonic()
        sending = [line.socket for line in open_lines if line.wants_to_send(now)]
        sockets = [line.socket for line in open_lines]
        readable, writable, _ = select.select(sockets, sending, [], _TURN)
        now = time.monotonic()
        for line in open_lines:
            line.turn(now, readable=line.socket in readable, writable=line.socket in writable)
    for line in lines:
        line.give_up()
    return [answer for line in lines for answer in line.answers]


def summed(answers: Sequence[str]) -> str:
    """The answers of a row in a few words."""
    counted = Counter(answers).most_common(_SHOWN)
    if len(answers) == 1:
        return _printable(answers[0])
    return "; ".join(f"{count} x {_printable(answer)}" for answer, count in counted)


def _printable(answer: str) -> str:
    return "".join(each if each.isprintable() else " " for each in answer)
