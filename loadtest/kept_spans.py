"""An OTLP/HTTP collector that writes what comes to a file, and the reader of that file.

    python -m loadtest.kept_spans PORT FILE

Nothing is decoded while a load runs: each export is kept as it came, behind its length.
"""

from __future__ import annotations

import gzip
import struct
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

_LENGTH = struct.Struct(">I")


class KeptSpan(NamedTuple):
    """A span with times in nanoseconds since the epoch; `events` has the first of each name."""

    name: str
    trace_id: int
    end: int
    attributes: dict[str, Any]
    events: dict[str, int]


def read_spans(path: Path) -> Iterator[KeptSpan]:
    """All that the file has so far."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    content, at = path.read_bytes(), 0
    while at + _LENGTH.size <= len(content):
        (length,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        export = ExportTraceServiceRequest.FromString(content[at : at + length])
        at += length
        for resource in export.resource_spans:
            for scope in resource.scope_spans:
                yield from map(_kept, scope.spans)


def _kept(span: Any) -> KeptSpan:
    attributes = {pair.key: _plain(pair.value) for pair in span.attributes}
    events = {event.name: event.time_unix_nano for event in reversed(span.events)}
    trace_id = int.from_bytes(span.trace_id, "big")
    return KeptSpan(span.name, trace_id, span.end_time_unix_nano, attributes, events)


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(each) for each in value.array_value.values]
    return getattr(value, kind)


def serve(port: int, path: Path) -> None:
    """Take exports until the process ends."""
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            with lock, path.open("ab") as file:
                file.write(_LENGTH.pack(len(body)) + body)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is logged."""

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
