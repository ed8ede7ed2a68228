"""HTTP servers of tests, whose threads say nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer, ThreadingHTTPServer


class Quiet:
    """A handler of requests that logs none."""

    disable_nagle_algorithm = True  # else a body waits 40 ms behind its head

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class QuietServer(ThreadingHTTPServer):
    """A server whose clients may hang up."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def answering(server: HTTPServer) -> Iterator[str]:
    """The address of a server, which answers until the end."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
