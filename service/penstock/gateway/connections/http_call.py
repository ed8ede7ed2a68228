"""One HTTP request as its handler sees it, and the reply that it sends."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from penstock.access.policy import Permit
from penstock.core.access import Access, AccessSink, AuditSink
from penstock.core.body_quota import BodyQuota
from penstock.core.buffer import Buffer
from penstock.core.errors import request_prefix, shortened
from penstock.core.log.log_throttle import log_fault
from penstock.core.log.verbosity import VERBOSITY
from penstock.core.request import InferenceRequest
from penstock.gateway.replies import Refusal, Reply, error_reply
from penstock.http1.connection import Connection
from penstock.http1.requests import Exchange, Field, RequestHead
from penstock.settings import Feature
from penstock.system.eager_start import start_eagerly

logger = logging.getLogger(__name__)

_MODEL = re.compile(r"/v2/(?:repository/)?models/([^/]+)")

_SMALL_BODY = 64 << 10
"""Bytes of a body that is waited for before its request is begun."""


class ClientDisconnectError(Exception):
    """The client has gone while its handler waited for it."""


class CallHost(Protocol):
    """The connection of a call, as the call sees it."""

    @property
    def connection(self) -> Connection:
        """The HTTP connection, which owns the exchange."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def client(self) -> tuple[str, int] | None:
        """Address and port of the client; `None` over a Unix socket."""

    @property
    def certificate(self) -> Sequence[str]:
        """The names in the client's certificate."""

    @property
    def received(self) -> list[HttpCall]:
        """Calls whose bodies have come to their end in this read, and which wait for that."""

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """The tasks of handlers on all connections."""

    @property
    def access(self) -> AccessSink | None:
        """The access log, if there is one."""

    @property
    def audit(self) -> AuditSink | None:
        """The audit log, if there is one."""

    @property
    def bodies(self) -> BodyQuota:
        """The quota of the bodies in flight on all connections."""

    def wake(self) -> None:
        """Write at the end of this turn of the event loop."""


class HttpCall(Exchange):
    """A request, which a handler answers with `send`, or in parts with `begin` to `end`.

    `method`, `path` as sent, with surrogates for bytes that are not UTF-8, and `headers`, by names
    in lower case, are those of its head.
    `inference` is the inference request that was read from it, which log lines name, `feature` the
    one of its route, `permit` that of its caller where a policy was asked, `translate_reply` what a
    whole reply passes through, if anything, and `more_fields` what any reply has in its head beside
    its own. `on_end` is told what the access log gets. Defaults are class attributes, so that a new
    call sets only what differs.
    """

    inference: InferenceRequest | None = None
    feature: Feature | None = None
    permit: Permit | None = None
    translate_reply: Callable[[Reply], Reply] | None = None
    more_fields: Sequence[Field] = ()
    status = 0
    on_end: Callable[[Access], None] | None = None
    _on_disconnect: Callable[[], None] | None = None
    _on_received: Callable[[], None] | None = None
    _on_writable: Callable[[], None] | None = None
    _reader: asyncio.Future[None] | None = None

    def __init__(
        self, host: CallHost, head: RequestHead, start: Callable[[HttpCall], None]
    ) -> None:
        super().__init__(head)
        self.method, self.path, self.headers = head.method, head.path, head.headers
        self.opened = time.monotonic_ns()
        self._host = host
        self._start = start

    # -- the request --------------------------------------------------------------------------

    @property
    def fields(self) -> Sequence[Field]:
        """All header fields, in order and as sent."""
        return self.head.fields

    @property
    def client(self) -> tuple[str, int] | None:
        """Address and port of the client; `None` over a Unix socket."""
        return self._host.client

    @property
    def certificate(self) -> Sequence[str]:
        """The names in the client's certificate, which TLS has verified."""
        return self._host.certificate

    @property
    def bodies(self) -> BodyQuota:
        """The quota of the bodies in flight."""
        return self._host.bodies

    @property
    def audit(self) -> AuditSink | None:
        """The audit log, if there is one."""
        return self._host.audit

    @property
    def comes_soon(self) -> bool:
        """Whether the rest of a small body is about to come: many clients send heads apart."""
        declared = self.body.declared
        return (
            declared is not None
            and declared <= _SMALL_BODY
            and not (self.body.complete or self.head.expects_continue)
        )

    def redirect(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        """Go on as another call, with the same body."""
        head = self.head
        head.method, head.path, head.headers = method, path, headers
        self.method, self.path, self.headers = method, path, headers

    def when_received(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the whole body is there; never if the client goes before."""
        self._on_received = callback

    def take_up(self) -> None:
        """Go on with a call that has waited for its body."""
        callback, self._on_received = self._on_received, None
        if callback is not None and not self.closed:
            callback()

    async def body_until(self, size: int) -> Buffer:
        """The body so far, once there are `size` or more bytes; all of it if it ends before.

        Raises `ClientDisconnectError`.
        """
        body = self.body
        while body.received < size and not body.complete:
            if self.closed:
                raise ClientDisconnectError
            self._host.connection.want_body(self, size)
            self._host.wake()
            self._reader = self._host.loop.create_future()
            await self._reader
        return body.data

    async def until(self, event: asyncio.Future[None]) -> None:
        """Wait for an event. Raises `ClientDisconnectError` if the client goes before."""
        self._reader = event
        if not self.closed:
            await event
        if self.closed:
            raise ClientDisconnectError

    def on_disconnect(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` when the client goes before the end of the reply, if it has not yet."""
        self._on_disconnect = callback
        if self.closed and callback is not None:
            callback()

    # -- the reply ----------------------------------------------------------------------------

    def send(self, reply: Reply) -> None:
        """Send a whole reply; nothing once the client has gone."""
        if self.closed or self.finished:
            return
        self._on_disconnect = None
        if self.translate_reply is not None:
            reply = self.translate_reply(reply)
        self.status = int(reply.status)
        if VERBOSITY.level and isinstance(reply, Refusal):
            self._log_refusal(reply)
        try:
            fields = [*reply.fields, *self.more_fields] if self.more_fields else reply.fields
            self._host.connection.respond(self, self.status, fields, reply.parts)
        except ValueError as error:  # a header field that cannot be sent
            log_fault(logger, error, "%s %s failed", self.method, shortened(self.path))
            self.send(_unexpected())
            return
        self._ended()

    def _log_refusal(self, reply: Refusal) -> None:
        """A verbose line about an inference that fails, as Triton's (contract L-08)."""
        if self.feature is Feature.INFERENCE:
            prefix = "" if self.inference is None else request_prefix(self.inference.id)
            logger.debug("%sInfer failed: %s", prefix, reply.error.message)

    def begin(self, status: int, fields: Sequence[Field]) -> None:
        """Begin a reply whose body follows in parts."""
        if not self.closed:
            self.status = int(status)
            self._host.connection.begin(self, self.status, [*fields, *self.more_fields])
            self._host.wake()

    def write_nowait(self, data: Buffer) -> bool:
        """Send a part of the body; returns whether the client reads fast enough for more."""
        if self.closed or self.finished:
            return False
        self._host.wake()
        return self._host.connection.send(self, data)

    @property
    def is_writable(self) -> bool:
        """Whether the client reads fast enough for more."""
        return not self.closed and self._host.connection.send_buffer.writable

    @property
    def is_flushed(self) -> bool:
        """Whether the kernel has taken all that was written."""
        return self.is_writable and not self._host.connection.send_buffer

    def when_writable(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` once the client has read enough for more."""
        self._on_writable = callback

    def end(self) -> None:
        """End a reply that was sent in parts."""
        if not (self.closed or self.finished):
            self._on_disconnect = self._on_writable = None
            self._host.connection.end(self)
            self._ended()

    def abort(self) -> None:
        """Break off a reply that cannot be completed: its client sees that the end is missing."""
        if not (self.closed or self.finished):
            self._on_disconnect = self._on_writable = None
            self._host.connection.abort()
            self._host.wake()

    def run(self, handling: Coroutine[Any, Any, None]) -> None:
        """Run a handler: up to its first wait at once, the rest in a task.

        What it raises is a fault: the log gets it, and the client an error.
        """
        try:
            task = start_eagerly(self._host.loop, handling)
        except Exception as error:  # a fault of any kind
            self._fail(error)
            return
        if task is not None:
            self._host.tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._host.tasks.discard(task)
        if task.cancelled():
            self.abort()
        elif (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, fault: BaseException) -> None:
        log_fault(logger, fault, "%s %s failed", self.method, shortened(self.path))
        if self.answered:
            self.abort()
        else:
            self.send(_unexpected())

    def _ended(self) -> None:
        self._host.wake()
        if self._host.access is not None:
            self._host.access.add(self._access())
        if self.on_end is not None:
            self.on_end(self._access())

    def _access(self) -> Access:
        """The line of the access log about this request."""
        inference = self.inference
        timeline = None if inference is None else inference.scope.timeline
        named = _MODEL.match(self.path)
        model = "" if inference is None else inference.model_name
        return Access(
            at=time.time(),
            peer=written(self.client),
            protocol=f"HTTP/{self.head.version}",
            method=self.method,
            path=self.path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"),
            status=str(self.status) if self.finished else "CANCELLED",
            received=self.body.received,
            sent=self.sent,
            seconds=(time.monotonic_ns() - self.opened) / 1e9,
            model=model if named is None else named[1],
            request_id="" if inference is None else inference.id,
            trace_id="" if timeline is None else timeline.trace.text_id,
            caller="" if self.permit is None else self.permit.caller,
        )

    # -- for the connection -------------------------------------------------------------------

    def on_begin(self) -> None:
        self._start(self)

    def on_body(self) -> None:
        _wake(self._reader)
        if self._on_received is not None and self.body.complete:
            self._host.received.append(self)

    def on_writable(self) -> None:
        callback, self._on_writable = self._on_writable, None
        if callback is not None:
            callback()

    def on_closed(self) -> None:
        _wake(self._reader)
        self._on_received = None  # breaks the reference cycle
        if self._host.access is not None:
            self._host.access.add(self._access())
        if self.on_end is not None:
            self.on_end(self._access())
        callback, self._on_disconnect = self._on_disconnect, None
        if callback is not None:
            callback()


def _unexpected() -> Reply:
    return error_reply("unexpected error, see the server's log", 500)


def written(client: tuple[str, int] | None) -> str:
    """The address of a client, as `HOST:PORT`."""
    if client is None:
        return ""
    host, port = client
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
