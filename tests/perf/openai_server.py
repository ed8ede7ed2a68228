"""A server of OpenAI's endpoints that answers each request with three tokens, or an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from harness.http_threads import Quiet, answering


class OpenAiServer(ThreadingHTTPServer):
    """`bodies` are what came; with `broken` streams end with an error."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.broken = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(Quiet, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OpenAiServer

    def do_GET(self) -> None:
        self._answer({"data": [{"id": "llm"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        if not body.get("stream"):
            self._answer({"choices": [{"text": "a b c"}], "usage": {"completion_tokens": 3}})
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in self._events():
            # In two parts each, so that an event does not end with its chunk.
            for part in (event[:7], event[7:]):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def _events(self) -> Iterator[bytes]:
        yield _event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for text in "abc":
            yield _event({"choices": [{"delta": {"content": text}}]})
        if self.server.broken:
            yield _event({"error": {"message": "the engine is gone", "code": 500}})
            return
        yield _event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        yield _event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 3}})
        yield b"data: [DONE]\n\n"

    def _answer(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


@contextmanager
def openai_server() -> Iterator[OpenAiServer]:
    """The server, on a port of its choice."""
    server = OpenAiServer()
    with answering(server):
        yield server
