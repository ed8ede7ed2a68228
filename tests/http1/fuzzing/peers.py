"""What other parsers find in the same bytes."""

from __future__ import annotations

import h11
import httptools

from http1.fuzzing.valid_requests import Understood

_LARGEST_HEAD = 1 << 17


class _Collector:
    """Callbacks of httptools, which gets all bytes at once."""

    def __init__(self) -> None:
        self.found: list[Understood] = []
        self._target = self._body = b""
        self.parser = httptools.HttpRequestParser(self)

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self.found.append(Understood.of(self.parser.get_method(), self._target, self._body))
        self._target = self._body = b""


def read_by_httptools(data: bytes) -> tuple[list[Understood], bool]:
    """The complete requests in front of the first error, and whether that is all it could say.

    It leaves out the body of a request that asks for an upgrade, which our server does not speak.
    """
    collector = _Collector()
    try:
        collector.parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        return collector.found[:-1], False
    except httptools.HttpParserError:
        pass
    return collector.found, True


def read_by_h11(data: bytes) -> list[Understood]:
    """The complete requests in front of the first error, or of the last request."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGEST_HEAD)
    connection.receive_data(data)
    found: list[Understood] = []
    try:
        while isinstance(request := connection.next_event(), h11.Request):
            body = bytearray()
            while isinstance(event := connection.next_event(), h11.Data):
                body += event.data
            if not isinstance(event, h11.EndOfMessage):
                break
            found.append(Understood.of(request.method, request.target, bytes(body)))
            connection.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE:
                break
            connection.start_next_cycle()
    except h11.RemoteProtocolError:
        pass
    return found
