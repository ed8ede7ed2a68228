"""A collector of spans over OTLP, by HTTP and by gRPC, which can be slow, refuse, or go away."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from harness.serving import wait_until


class Collected:
    """The spans that have come, with their resources and the headers of their requests.

    `status` is what requests are answered with: 200, or an HTTP status of refusal. `block` makes
    requests wait until it is released.
    """

    def __init__(self) -> None:
        self.spans: list[trace_pb2.Span] = []
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.requests = 0
        self.status = 200
        self.open = threading.Event()
        self.open.set()

    def take(self, request: Any, headers: dict[str, str]) -> int:
        """Answer one request: with its status."""
        self.requests += 1
        self.open.wait(60)
        if self.status != 200:
            return self.status
        self.headers.append(headers)
        for part in request.resource_spans:
            self.resources.append(attributes(part.resource.attributes))
            for scope in part.scope_spans:
                self.spans += scope.spans
        return self.status

    def named(self, name: str) -> list[trace_pb2.Span]:
        """The spans of a name."""
        return [span for span in self.spans if span.name == name]

    def wait_for(self, condition: Callable[[], Any]) -> None:
        """Wait until what has come is enough."""
        wait_until(lambda: bool(condition()))

    def children(self, parent: trace_pb2.Span) -> list[trace_pb2.Span]:
        """The spans below one, in the order of their beginnings."""
        found = [span for span in self.spans if span.parent_span_id == parent.span_id]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def trace(self, trace_id: int) -> list[trace_pb2.Span]:
        """The spans of a trace."""
        return [span for span in self.spans if span.trace_id == trace_id.to_bytes(16, "big")]


def attributes(pairs: Any) -> dict[str, Any]:
    """Attributes as plain values."""
    return {pair.key: _plain(pair.value) for pair in pairs}


def _plain(value: common_pb2.AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(each) for each in value.array_value.values]
    return getattr(value, str(kind))


class HttpCollector(Collected):
    """One on a free port, or a given one, of the loopback interface."""

    def __init__(self, port: int = 0) -> None:
        super().__init__()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
                headers = {name.lower(): value for name, value in self.headers.items()}
                self.send_response(collector.take(request, {**headers, ":path": self.path}))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1/traces"

    def __enter__(self) -> HttpCollector:
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class GrpcCollector(Collected, trace_service_pb2_grpc.TraceServiceServicer):
    """One on a free port; `status` other than 200 is answered with PERMISSION_DENIED.

    Exporters do not try that again, so how long they go on trying has no say in it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._server = grpc.server(ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self.url = f"http://127.0.0.1:{self.port}"
        self._server.start()

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Take the spans of one request."""
        metadata = {key: str(value) for key, value in context.invocation_metadata()}
        if self.take(request, metadata) != 200:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")
        return trace_service_pb2.ExportTraceServiceResponse()

    def __enter__(self) -> GrpcCollector:
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
        self._server.stop(0).wait()


def port_of_nobody() -> int:
    """A port that nothing listens on, as far as one can know."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return int(server.server_address[1])
