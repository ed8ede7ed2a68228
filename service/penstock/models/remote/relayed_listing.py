"""A listing of Google's or Azure's stores through this process: one that has any key.

`obstore` refuses a whole page of keys for one that is no path, and cannot sign an address of a
listing of these two, whose signatures do not hold the host. So it asks a relay here, as it would
ask the store: credentials, pages and tries are its own. The relay asks the store with the headers
that it was given, keeps what the pages say, and gives back pages without a key.
"""

from __future__ import annotations

import secrets
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from xml.sax.saxutils import escape

from penstock.models.remote.listed_page import LONGEST_PAGE, ListedKey, ListedPage

_SECONDS = 20.0
"""Without a byte."""
_NOT_SENT_ON = {"host", "connection", "user-agent", "accept-encoding"}

OpenStore = Callable[[str, str], Any]
"""Opens the store of `obstore` at the address of an endpoint, with a name for its client."""


class RelayedListing:
    """Lists the bucket of a store that `open_store` opens, and lies at `endpoint`.

    Each call asks, and blocks. Raises `OSError`, and what the library raises.
    """

    def __init__(self, endpoint: str, open_store: OpenStore) -> None:
        self._endpoint, self._open_store = endpoint, open_store

    def below(self, prefix: str) -> list[ListedKey]:
        """All keys below a folder, or all, in their order."""
        import obstore

        with self._relay() as (store, relay):
            for _ in obstore.list(store, prefix=prefix or None):
                pass
        return [key for page in relay.pages.values() for key in page.keys]

    def top(self, prefix: str) -> tuple[list[str], list[ListedKey]]:
        """What lies below a folder and ends at the next slash, and the keys without another."""
        import obstore

        with self._relay() as (store, relay):
            obstore.list_with_delimiter(store, prefix=prefix or None)
        pages = relay.pages.values()
        return (
            [folder for page in pages for folder in page.folders],
            [key for page in pages for key in page.keys],
        )

    @contextmanager
    def _relay(self) -> Iterator[tuple[Any, _Relay]]:
        with _Relay(self._endpoint) as relay:
            thread = threading.Thread(
                target=relay.serve_forever, args=(0.05,), name="penstock-listing", daemon=True
            )
            thread.start()
            try:
                yield self._open_store(relay.address, relay.client), relay
            except Exception as error:
                if relay.address in str(error):
                    raise OSError(str(error).replace(relay.address, self._endpoint)) from error
                raise
            finally:
                relay.shutdown()


class _Relay(ThreadingHTTPServer):
    """Sends requests on to an endpoint, from one `client` alone, and keeps what is listed."""

    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoint = endpoint
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.client = secrets.token_hex(16)
        # By what was asked, since a page that comes slowly is asked for again.
        self.pages: dict[str, ListedPage] = {}
        # What is asked is signed for the store alone.
        self.opener = urllib.request.build_opener(_NoRedirects)

    def handle_error(self, request: object, client_address: object) -> None:
        """Who has asked hangs up when it is stopped."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class _Handler(BaseHTTPRequestHandler):
    server: _Relay
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        """Answer a page of a listing as the store does, but for its keys."""
        if self.headers.get("User-Agent") != self.server.client:
            self._answer(403, b"")
            return
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in _NOT_SENT_ON
        }
        asked = urllib.request.Request(self.server.endpoint + self.path, headers=headers)
        try:
            with self.server.opener.open(asked, timeout=_SECONDS) as answer:
                page = ListedPage.parse(answer.read(LONGEST_PAGE))
        except urllib.error.HTTPError as error:
            self._answer(error.code, error.read(LONGEST_PAGE))
        except (OSError, ValueError, HTTPException) as error:
            reason = str(getattr(error, "reason", error))
            self._answer(502, f"<Error><Code>{escape(reason)}</Code></Error>".encode())
        else:
            self.server.pages[self.path] = page
            token = escape(page.token)
            self._answer(200, _PAGE.format(token and _TOKENS.format(token)).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


_PAGE = "<Page><Blobs/>{}</Page>"
_TOKENS = "<NextContinuationToken>{0}</NextContinuationToken><NextMarker>{0}</NextMarker>"
