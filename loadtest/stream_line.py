"""Connections of load tests: those of `penstock perf`, whose calls a `Tally` counts."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping
from typing import Any

from loadtest.stream_tally import Tally
from penstock_client.perf.wire.call import Call, Request, Wire
from penstock_client.perf.wire.endpoint import Endpoint
from penstock_client.perf.wire.grpc import GrpcWire
from penstock_client.perf.wire.grpc import request_head as grpc_head
from penstock_client.perf.wire.http import HttpWire
from penstock_client.perf.wire.http import request as http_request
from penstock_client.perf.wire.http import request_head as http_head
from penstock_client.perf.wire.outgoing import framed

STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
Ended = Callable[[Any], None]
"""Is told when a call of a line ends."""


class Line:
    """A connection, and what becomes of its calls; a line is made by `grpc_line` or `http_line`."""

    def __init__(
        self,
        open_wire: Callable[[Endpoint, Any], Wire],
        endpoint: Endpoint,
        encode: Callable[[bytes], Request],
        tally: Tally,
        on_ended: Ended,
    ) -> None:
        self._tally = tally
        self._on_ended = on_ended
        self._encode = encode
        self._wire = open_wire(endpoint, self)

    def fileno(self) -> int:
        """The descriptor of the socket, for a poll."""
        return int(self._wire.transport.fileno())

    def close(self) -> None:
        """Close the connection, with its calls."""
        self._wire.transport.close()

    def start(self, message: bytes) -> None:
        """Begin a call; returns once it is sent, unless the peer's windows have no room."""
        now = time.perf_counter()
        call = Call(0, 0, now, now, streamed=True)
        if self._tally.mark:
            call.whole, call.in_frames = [], False
        self._wire.start(call, self._encode(message))
        self._wire.flush()
        while self._wire.transport.blocked:
            select.select([], [self._wire.transport], [])
            self._wire.transport.flush()

    def read(self) -> None:
        """Take what has come, and count it with the time of its coming."""
        self._wire.read()

    def on_response(self, call: Call, now: float) -> None:
        """A message has come."""
        if call.whole:
            self._tally.count_marks(call.whole)
        self._tally.message(call, now)

    def on_end(self, call: Call, now: float, error: str) -> None:
        """A call has ended, which the load does with it unless the tally counts such an error."""
        if error:
            self._tally.error(call, error, now)
        self._tally.tokens += call.tokens
        self._tally.ended(call, now)
        self._on_ended(self)

    def on_lost(self, wire: Wire, reason: str) -> None:
        """The connection is gone, and with it the load."""
        raise SystemExit(f"a connection is gone: {reason}")


def grpc_line(target: str, tally: Tally, on_ended: Ended, metadata: Mapping[str, str]) -> Line:
    """A line of `ModelStreamInfer` calls, each on a stream of its own."""
    endpoint = endpoint_of(target)
    head = grpc_head(endpoint, STREAM, metadata)
    return Line(GrpcWire, endpoint, lambda message: framed(head, message), tally, on_ended)


def http_line(
    target: str, path: str, tally: Tally, on_ended: Ended, headers: Mapping[str, str]
) -> Line:
    """A line of HTTP, with one call at a time; answers are events, or whole."""
    endpoint = endpoint_of(target)
    head = http_head(endpoint, path, headers, "application/json")
    return Line(HttpWire, endpoint, lambda body: http_request(head, body), tally, on_ended)


def endpoint_of(target: str) -> Endpoint:
    """The endpoint at HOST:PORT."""
    host, _, port = target.rpartition(":")
    return Endpoint(host, int(port))
