"""One connection under attack, and what has to hold whatever comes in."""

from __future__ import annotations

from http import HTTPStatus

from http1.fuzzing.responses import Response, read_responses
from http1.fuzzing.service import Service
from http1.fuzzing.valid_requests import Understood
from penstock.http1.connection import Connection
from penstock.http1.limits import HttpLimits

_PER_BYTE = 8
"""Bytes we may answer to a byte: the most are refusals."""
_BESIDES = 4096
_MOST_WAITING = 18
"""Requests that wait, the one that is answered, and one that a slice may hold beyond them."""


class Attack:
    """A connection of the server's, driven as its shell drives it. `history` is all it was sent.

    What it does not want to read yet waits in `_unread`, as in a socket.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self.history: list[bytes] = []
        self.refusals: list[HTTPStatus] = []
        self.over = False
        self.service = Service()
        self._now = 0.0
        self._connection = Connection(limits, self.service.begin, self.refusals.append, self._now)
        self.service.connection = self._connection
        self._unread = bytearray()
        self._sent = bytearray()
        self._received = 0
        self._lost = False
        self._wants, self._parses = True, False

    def feed(self, data: bytes) -> None:
        """Bytes arrive."""
        self.history.append(data)
        self._unread += data
        self.turn()

    def turn(self) -> None:
        """A turn of the event loop."""
        connection = self._connection
        self.service.turn()
        self._write()
        if self._parses:
            connection.parse(self._now)
            self.service.read()
        while self._unread and self._wants and not self.over:
            self._read()
            self._write()
        self._write()

    def settle(self) -> None:
        """Turns until nothing is left to do."""
        self.resume()
        for _ in range(100_000):
            before = (len(self._unread), len(self._sent))
            waiting = self._parses or self.service.waiting
            self.turn()
            after = (len(self._unread), len(self._sent))
            if before == after and not waiting:
                return
        raise AssertionError("it never comes to rest")

    def pause(self) -> None:
        """The socket takes no more."""
        self._connection.send_buffer.paused = True

    def resume(self) -> None:
        """The socket takes bytes again."""
        self._connection.send_buffer.paused = False
        self._write()
        if self._connection.exchanges:
            self._connection.exchanges[0].on_writable()
        self._write()

    def drain(self) -> None:
        """The server ends."""
        self._connection.drain()
        self._write()

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self._now += seconds
        if self._connection.check_time(self._now, reading=self._wants):
            self._write()
            self.lose()
        self._write()

    def end(self) -> None:
        """The client ends its side."""
        stays = self._connection.end_received()
        self._write()
        if not (stays or self.over):
            self.lose()

    def check(self) -> None:
        """Check the invariants that hold between any two inputs."""
        bound = _PER_BYTE * self._received + self.service.made + _BESIDES
        assert len(self._sent) <= bound, f"{len(self._sent)} bytes out, {self._received} in"
        assert len(self._connection.exchanges) <= _MOST_WAITING
        assert self.service.open <= _MOST_WAITING

    def lose(self) -> None:
        """The client is gone, and hears no more."""
        self.over = True
        if not self._lost:
            self._lost = True
            self._connection.lost()
            self.service.finish()
        assert not self._connection.exchanges
        assert not self.service.open, f"{self.service.open} requests outlive their connection"

    def sent_since(self, position: int) -> bytes:
        """What came back behind the first so many bytes."""
        return bytes(self._sent[position:])

    def responses(self) -> list[Response]:
        """What came back, which must be well formed."""
        return read_responses(bytes(self._sent), ended=self.over)[0]

    def _read(self) -> None:
        self._receive()
        self.service.read()

    def _receive(self) -> None:
        connection, unread = self._connection, self._unread
        memory = connection.direct_memory()
        if memory is None:
            data = bytes(unread[: 1 << 16])
            del unread[: len(data)]
            self._received += len(data)
            connection.receive(data, self._now)
            return
        size = min(len(memory), len(unread))
        memory[:size] = unread[:size]
        del unread[:size]
        self._received += size
        connection.filled(size, self._now)

    def _write(self) -> None:
        connection = self._connection
        if self._lost:
            self._parses = False
            return
        self._wants, self._parses, _ = connection.settle(self._now)
        if not connection.send_buffer.paused:
            ready = connection.send_buffer.take_ready() if connection.send_buffer else []
            for part in ready:
                assert not self.over, "written after the end"
                self._sent += part
            if connection.closing:
                self.over = True


def understood(response: Response) -> Understood | None:
    """What the service says that it understood; `None` for a refusal."""
    text = response.fields.get(b"x-request")
    if text is None:
        return None
    method, target, size, checksum = text.split(b" ")
    if size == b"-":
        return Understood(method, target, -1, -1)
    return Understood(method, target, int(size), int(checksum))


def same(answered: Understood, asked: Understood) -> bool:
    """Whether an answer is that of a request, whose body it may not know.

    A target that is no path may be understood in several ways.
    """
    if not (answered.target and asked.target):
        answered, asked = answered._replace(target=b""), asked._replace(target=b"")
    if answered.size < 0:
        return answered[:2] == asked[:2]
    return answered == asked
