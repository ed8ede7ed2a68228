"""What answers requests: every response says what was understood of its request."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVarTuple

from http1.fuzzing.valid_requests import Understood
from penstock.core.access import AccessSink, AuditSink
from penstock.core.body_quota import BodyQuota
from penstock.core.buffer import Buffer
from penstock.gateway.connections.http_call import ClientDisconnectError, HttpCall
from penstock.gateway.replies import Reply
from penstock.http1.connection import Connection
from penstock.http1.requests import Exchange, RequestHead

_Arguments = TypeVarTuple("_Arguments")

_PIECE = 100
_PARTS = 5
TEXT = b"x" * 500
"""Part of a response that is streamed."""


class Turns(asyncio.AbstractEventLoop):
    """An event loop without a clock or sockets, which goes on when it is told to."""

    def __init__(self) -> None:
        self._ready: deque[Callable[[], object]] = deque()

    def __len__(self) -> int:
        return len(self._ready)

    def turn(self) -> None:
        """Run what is ready now, as the running loop: from Python 3.14 on tasks insist on it."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                self._ready.popleft()()
        finally:
            asyncio._set_running_loop(before)

    def call_soon(
        self,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        context = context or contextvars.copy_context()
        self._ready.append(lambda: context.run(callback, *args))
        return asyncio.Handle(callback, args, self, context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, **options)

    def get_debug(self) -> bool:
        return False


class Service:
    """The host of the calls of one connection; `later` are those that are answered by and by.

    Calls are the gateway's: the connection's own classes may be compiled, and not derived from.
    """

    client: tuple[str, int] | None = None
    certificate: Sequence[str] = ()
    access: AccessSink | None = None
    audit: AuditSink | None = None

    def __init__(self) -> None:
        self.open = self.made = 0
        self.loop = Turns()  # type: ignore[abstract]
        self.later: deque[asyncio.Future[None]] = deque()
        self.received: list[HttpCall] = []
        self.bodies = BodyQuota(1 << 30)
        self.tasks: set[asyncio.Task[Any]] = set()
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The connection, once it is set."""
        assert self._connection is not None
        return self._connection

    @connection.setter
    def connection(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def waiting(self) -> int:
        """What has still to be done, as far as nobody needs to send anything."""
        return len(self.later) + len(self.loop)

    def begin(self, head: RequestHead) -> Exchange:
        """The exchange of a request."""
        self.open += 1
        call = HttpCall(self, head, self._start)
        call.on_disconnect(self._closed)
        return call

    def turn(self) -> None:
        """Answer one of those that have waited."""
        if self.later:
            self.later.popleft().set_result(None)
        self.loop.turn()

    def read(self) -> None:
        """Take up the calls that the last read has completed."""
        received, self.received = self.received, []
        for call in received:
            call.take_up()

    def finish(self) -> None:
        """Turns until nothing waits."""
        while self.waiting:
            self.turn()

    def wake(self) -> None:
        """What is to be written is looked for anyway."""

    def _closed(self) -> None:
        self.open -= 1

    # -- answers ------------------------------------------------------------------------------

    def _start(self, call: HttpCall) -> None:
        """Answer in the way that the first segment of the path says, mostly once all has come."""
        kind = call.path.split("/")[1] if "/" in call.path else ""
        if kind == "early":
            self._send(call, b"- -")
        elif kind == "now" and call.comes_soon:
            call.when_received(lambda: self._send(call, _known(call.body.data)))
        else:
            call.run(self._answer(call, kind))

    async def _answer(self, call: HttpCall, kind: str) -> None:
        size = _PIECE if kind == "pieces" else 1 << 30
        while not call.body.complete:
            if await self._gone(call, size):
                return
            size += _PIECE
        if kind == "later":
            self.later.append(self.loop.create_future())
            await self.later[-1]
        known = _known(call.body.data)
        if kind == "parts":
            self._stream(call, known)
        else:
            self._send(call, known)

    async def _gone(self, call: HttpCall, size: int) -> bool:
        """Read so many bytes of the body; whether the client has gone before they came."""
        try:
            await call.body_until(size)
        except ClientDisconnectError:
            return True
        return False

    def _send(self, call: HttpCall, known: bytes) -> None:
        """Say what was understood."""
        if not call.closed:
            self._closed()
            call.send(Reply(200, [self._field(call.head, known)], [b"<", b">"]))

    def _stream(self, call: HttpCall, known: bytes) -> None:
        """The same, in parts as the client reads them."""
        if not call.closed:
            call.begin(200, [self._field(call.head, known)])
            _Parts(self, call).write()

    def _field(self, head: RequestHead, known: bytes) -> tuple[bytes, bytes]:
        target = head.path.encode("utf-8", "surrogateescape")
        target += b"?" + head.query if head.query else b""
        value = b"%b %b %b" % (head.method.encode(), target if target[:1] == b"/" else b"", known)
        self.made += len(value) + 200
        return b"x-request", value


class _Parts:
    """The body of a response that is streamed."""

    def __init__(self, service: Service, call: HttpCall) -> None:
        self._service = service
        self._call = call
        self._left = _PARTS

    def write(self) -> None:
        """Write as much as the client reads."""
        while self._left:
            self._left -= 1
            self._service.made += len(TEXT)
            if not self._call.write_nowait(TEXT) and self._left:
                self._call.when_writable(self.write)
                return
        if not self._call.finished:
            self._service.open -= 1
            self._call.end()


def _known(body: Buffer) -> bytes:
    _, _, size, checksum = Understood.of(b"", b"", bytes(body))
    return b"%d %d" % (size, checksum)
