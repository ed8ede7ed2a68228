"""An HTTP server that answers as a test tells it, on a port that it may take again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase

from harness.http_threads import Quiet, QuietServer, answering
from penstock_client.reading.address import Address

Answer = bytes | Callable[[BufferedIOBase], None]
"""The body of an answer of status 200; or what writes an answer, from its first line on."""


class StubServer(QuietServer):
    """`answers` by path; any other is 404. `asked` are the paths of requests so far."""

    def __init__(self, port: int = 0) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.released = threading.Event()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.server_port)

    def hold(self, out: BufferedIOBase) -> None:
        """An answer that does not end before `released`."""
        out.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
        out.flush()
        self.released.wait(60)


class _Handler(Quiet, BaseHTTPRequestHandler):
    server: StubServer

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        answer = self.server.answers.get(self.path)
        if callable(answer):
            answer(self.wfile)
            return
        self.send_response(404 if answer is None else 200)
        self.end_headers()
        self.wfile.write(answer or b"")

    do_POST = do_GET  # noqa: N815


@contextmanager
def stub_server(port: int = 0) -> Iterator[StubServer]:
    """The server, which runs; all of its answers end with it."""
    server = StubServer(port)
    with answering(server):
        try:
            yield server
        finally:
            server.released.set()


def tritons(server: StubServer, *, success: int = 5, model: str = "bert") -> None:
    """Have it answer as a server with one model does."""
    labels = f'model="{model}",version="1"'
    server.answers |= {
        "/metrics": f"nv_inference_request_success{{{labels}}} {success}\n".encode(),
        "/v2": b'{"name": "stub", "version": "1.2"}',
        "/v2/health/ready": b"",
        "/v2/repository/index": f'[{{"name":"{model}","version":"1","state":"READY"}}]'.encode(),
        "/v2/models/stats": b'{"model_stats": []}',
    }
