"""`MediaTransfer`: one bounded fetch over HTTP, to addresses that are public or allowed."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urljoin, urlsplit

from penstock.backend import InvalidRequestError
from penstock_backends.language_model.media.addresses import is_public
from penstock_backends.language_model.media.bounds import (
    ALLOWED_HOSTS,
    MediaLimits,
    media_refusal,
    media_too_large,
)
from penstock_backends.language_model.media.name_lookups import NameLookups

_REDIRECTIONS = 3
_MOVED = (301, 302, 303, 307, 308)
_CHUNK = 1 << 16
_LOOKUPS = NameLookups()


@dataclass(slots=True)
class MediaTransfer:
    """One fetch, which runs on a thread; `abandon` ends it from another.

    Raises `InvalidRequestError` for what is not fetched.
    """

    name: str
    limits: MediaLimits
    _end: float = field(init=False)
    _socket: socket.socket | None = None
    _abandoned: bool = False

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.limits.seconds

    def run(self, url: str) -> bytes:
        """Fetch, following a few redirections, each of which is checked again."""
        for _ in range(_REDIRECTIONS + 1):
            answer = self._ask(url)
            if isinstance(answer, bytes):
                return answer
            url = urljoin(url, answer)
        raise media_refusal(self.name, "is redirected too often")

    def abandon(self) -> None:
        """Shut the connection down, so that the thread ends."""
        self._abandoned = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _ask(self, url: str) -> bytes | str:
        """The content, or where it has moved to."""
        parts = _parts(url, self.name)
        self.limits.check_urls(self.name)
        connection = self._connect(parts)
        try:
            self._left()  # it may have been abandoned meanwhile
            path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
            connection.request("GET", path, headers={"Accept": "*/*", "User-Agent": "penstock"})
            with connection.getresponse() as answer:
                if answer.status in _MOVED and (moved := answer.getheader("Location")):
                    return moved
                if answer.status != 200:
                    raise media_refusal(self.name, f"is answered with status {answer.status}")
                return self._content(answer)
        except TimeoutError as error:
            raise self.too_slow() from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise media_refusal(self.name, f"cannot be fetched: {reason}") from error
        finally:
            connection.close()
            self._close()

    def _content(self, answer: http.client.HTTPResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        while chunk := answer.read1(_CHUNK):
            size += len(chunk)
            if size > self.limits.size:
                raise media_too_large(self.name, self.limits)
            parts.append(chunk)
            self._left()
        return b"".join(parts)

    def _connect(self, parts: SplitResult) -> http.client.HTTPConnection:
        """A connection to an address that has been checked: a name may have another next time."""
        host, secure = str(parts.hostname), parts.scheme == "https"
        only = self.limits.only_hosts
        if only and host.lower() not in only:
            raise media_refusal(self.name, f"has the host '{host}', which the model does not name")
        port = parts.port or (443 if secure else 80)
        address = self._address(host, port)
        try:
            self._socket = socket.create_connection((address, port), timeout=self._left())
            if secure:
                context = ssl.create_default_context()
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            self._close()
            raise media_refusal(self.name, f"cannot be fetched: {error}") from error
        connection = http.client.HTTPConnection(host, port)
        connection.sock = self._socket
        return connection

    def _address(self, host: str, port: int) -> str:
        """An address to connect to. A client cannot tell a name of a neighbour from none."""
        addresses: list[str] = []
        try:
            addresses = _LOOKUPS.addresses(host, port, self._left())
        except TimeoutError as error:
            raise self.too_slow() from error
        except (OSError, UnicodeError):
            pass  # what is unknown has no address
        allowed = host.lower() in self.limits.allowed_hosts
        if not addresses or not (allowed or all(map(is_public, addresses))):
            raise media_refusal(
                self.name,
                f"has the host '{host}', which has no public address; the model's parameter "
                f"'{ALLOWED_HOSTS}' can allow others",
            )
        return addresses[0]

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _left(self) -> float:
        """Seconds that are left; refuses when there are none."""
        left = self._end - time.monotonic()
        if left <= 0 or self._abandoned:
            raise self.too_slow()
        return left

    def too_slow(self) -> InvalidRequestError:
        """The refusal of what takes too long."""
        return media_refusal(self.name, f"takes longer than {self.limits.seconds:g} s")


def _parts(url: str, name: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for a port that is not a number
    except ValueError as error:
        raise media_refusal(name, f"is not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise media_refusal(name, "must hold http:, https: or data: URLs")
    if any(not character.isprintable() or character == " " for character in url):
        raise media_refusal(name, "holds a URL with characters that must be encoded")
    return parts
