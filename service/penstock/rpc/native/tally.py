"""Counting calls and messages for channelz: shells and calls that count, used only where asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from time import time_ns
from typing import Any, cast

from penstock.http2.errors import ErrorCode
from penstock.http2.hpack import Field
from penstock.http2.stream import Buffer, Stream
from penstock.rpc.context import Reply, StatusError
from penstock.rpc.native.call import Call
from penstock.rpc.native.endpoint import Endpoint
from penstock.rpc.native.refusals import NotGrpc, Refused
from penstock.rpc.native.requests import ReadingCall, StreamCall, UnaryCall
from penstock.rpc.native.route import Route
from penstock.rpc.native.shell import Shell


@dataclass(slots=True)
class ServerTally:
    """Calls of a server since it began, and its open connections by id. Times are in ns."""

    calls_started: int = 0
    calls_succeeded: int = 0
    calls_failed: int = 0
    last_call: int = 0
    shells: dict[int, TalliedShell] = field(default_factory=dict)
    ids: Iterator[int] = field(default_factory=lambda: count(1))


@dataclass(slots=True)
class SocketTally:
    """One connection. Streams that neither failed nor are open have succeeded."""

    streams_started: int = 0
    streams_failed: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    last_stream: int = 0
    last_sent: int = 0
    last_received: int = 0


class TalliedShell(Shell):
    """A connection that counts."""

    def __init__(self, endpoint: Endpoint, server: ServerTally) -> None:
        super().__init__(endpoint)
        self.server = server
        self.tally = SocketTally()
        self.id = next(server.ids)

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    @property
    def streams_succeeded(self) -> int:
        tally = self.tally
        return tally.streams_started - tally.streams_failed - len(self.connection.streams)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.server.shells[self.id] = self

    def connection_lost(self, error: Exception | None) -> None:
        self.server.shells.pop(self.id, None)
        super().connection_lost(error)

    def _open_stream(self, stream_id: int, route: Route) -> Any:
        self.tally.streams_started += 1
        self.tally.last_stream = time_ns()
        return _TALLIED[route.call](self, stream_id, route)


class TalliedCall(Call):
    """A call that counts itself once as begun and once as ended, and its messages."""

    _settled = False

    @property
    def _counts(self) -> TalliedShell:
        return cast(TalliedShell, self._shell)

    def on_open(self) -> None:
        server = self._counts.server
        server.calls_started += 1
        server.last_call = self._counts.tally.last_stream
        super().on_open()

    def on_reset(self, code: ErrorCode) -> None:
        self._counts.tally.streams_failed += 1
        self._settle(succeeded=False)
        super().on_reset(code)

    def fail(self, status: StatusError, *extra: Field) -> None:
        self._settle(succeeded=False)
        super().fail(status, *extra)

    def returned(self, response: Reply | None) -> None:
        super().returned(response)  # which may end in `fail`
        self._settle(succeeded=True)

    def _settle(self, *, succeeded: bool) -> None:
        if not self._settled:
            self._settled = True
            self._counts.server.calls_succeeded += succeeded
            self._counts.server.calls_failed += not succeeded

    def _framed(self, message: Reply) -> tuple[list[Buffer], int]:
        framed = super()._framed(message)
        self._count_message()
        return framed

    def _send_packed(self, parts: list[Buffer], compressed: bool) -> None:
        self._count_message()
        super()._send_packed(parts, compressed)

    def _count_message(self) -> None:
        tally = self._counts.tally
        tally.messages_sent += 1
        tally.last_sent = time_ns()


class TalliedReadingCall(TalliedCall, ReadingCall):
    """A message counts as received when its method takes it."""

    def _request(self, flag: int, data: Buffer) -> Any:
        tally = self._counts.tally
        tally.messages_received += 1
        tally.last_received = time_ns()
        return super()._request(flag, data)


class _Unary(TalliedReadingCall, UnaryCall):
    pass


class _Streaming(TalliedReadingCall, StreamCall):
    pass


class _Refused(TalliedCall, Refused):
    pass


class _NotGrpc(NotGrpc):
    """A stream, and no call."""

    def on_reset(self, code: ErrorCode) -> None:
        cast(TalliedShell, self._shell).tally.streams_failed += 1
        super().on_reset(code)


_TALLIED: dict[Callable[[Shell, int, Route], Stream], Callable[[Shell, int, Route], Stream]] = {
    UnaryCall: _Unary,
    StreamCall: _Streaming,
    Refused: _Refused,
    NotGrpc: _NotGrpc,
}
