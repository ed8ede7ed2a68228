"""`KeySet`: the public keys of those who sign tokens, and when to fetch them anew."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final

from penstock.access.token_settings import TokenSettings
from penstock.core.errors import ConfigError

_WAIT_SECONDS: Final = 5.0
_FETCH_SECONDS: Final = 10.0
"""For one answer of a socket, and for the whole."""
_MOST_BYTES: Final = 8 << 20


class KeySet:
    """Keys by their ids (`kid`). A key is made when it is first asked for: sets may be large."""

    def __init__(self, keys: Mapping[str, Mapping[str, Any]]) -> None:
        self._keys = keys
        self._made: dict[tuple[str, str], Any] = {}

    @classmethod
    def parse(cls, data: bytes) -> KeySet:
        """The keys of a JSON Web Key Set (RFC 7517) that verify; raises `ConfigError`."""
        try:
            given = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"the key set is not JSON: {error}") from error
        listed = given.get("keys") if isinstance(given, dict) else None
        if not isinstance(listed, list):
            raise ConfigError("the key set has no list 'keys'")
        found = {
            each["kid"]: each
            for each in listed
            if isinstance(each, dict)
            and isinstance(each.get("kid"), str)
            and each.get("use", "sig") == "sig"
            and each.get("kty") in ("RSA", "EC", "OKP")
        }
        if not found:
            raise ConfigError("the key set has no public key with a 'kid' that verifies signatures")
        return cls(found)

    def __contains__(self, kid: str) -> bool:
        return kid in self._keys

    def key(self, kid: str, algorithm: str) -> Any:
        """The key, bound to an algorithm. Raises errors of PyJWT where it does not fit."""
        known = self._made.get((kid, algorithm))
        if known is None:
            import jwt

            given = self._keys[kid]
            if given.get("alg", algorithm) != algorithm:
                raise jwt.InvalidAlgorithmError(f"the key '{kid}' is for another algorithm")
            known = self._made[kid, algorithm] = jwt.PyJWK(dict(given), algorithm)
        return known


NO_KEYS: Final = KeySet({})


class FetchPlan:
    """Decides when keys are fetched: at an interval, sooner for an unknown key, never too often.

    Times are seconds on any clock that does not go back.
    """

    def __init__(self, settings: TokenSettings) -> None:
        self._refresh = settings.refresh_secs
        self._retry = settings.retry_secs
        self._last: float | None = None
        self._failed = False

    def due(self, now: float, *, wanted: bool) -> bool:
        """Whether to fetch now; `wanted` if a token named a key that is not known."""
        if self._last is None:
            return True
        return now - self._last >= (self._retry if wanted or self._failed else self._refresh)

    def fetched(self, now: float, *, failed: bool) -> None:
        """A fetch has ended."""
        self._last, self._failed = now, failed


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An address is what the operator wrote, and none that it leads to."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _Line:
    """The connection of a fetch. It may be cut, on another thread than that which waits at it."""

    def __init__(self) -> None:
        self._is_cut = False
        self._connection: HTTPConnection | None = None
        self._answering: socket.socket | None = None

    def connection(self, host: str, **options: Any) -> HTTPConnection:
        return self._kept(HTTPConnection(host, **options))

    def tls_connection(self, host: str, **options: Any) -> HTTPConnection:
        return self._kept(HTTPSConnection(host, **options))

    def _kept(self, connection: HTTPConnection) -> HTTPConnection:
        self._connection = connection
        answer = connection.getresponse

        def getresponse() -> HTTPResponse:
            self._answering = connection.sock  # which it gives away with the answer
            if self._is_cut:
                raise ConnectionAbortedError("nobody waits for it any more")
            return answer()

        connection.getresponse = getresponse  # type: ignore[method-assign]
        return connection

    def cut(self) -> None:
        """Reads of it end, also those to come."""
        self._is_cut = True
        connecting = None if self._connection is None else self._connection.sock
        for each in (connecting, self._answering):
            if each is not None:
                with suppress(OSError):  # it is closed
                    # Not by TLS, whose state is that of the other thread.
                    socket.socket.shutdown(each, socket.SHUT_RDWR)


class _OnLine(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens addresses by a line."""

    def __init__(self, line: _Line) -> None:
        super().__init__()
        self._line = line

    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(self._line.connection, req)

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(self._line.tls_connection, req)


async def fetch(address: str, seconds: float = _FETCH_SECONDS) -> KeySet:
    """The keys at an address, which has so long to answer. Raises `ConfigError`."""
    line = _Line()
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.to_thread(_fetch, address, line)
    except TimeoutError as error:
        raise ConfigError(f"'{address}': it has not come within {seconds:g} s") from error
    finally:
        line.cut()  # else its thread would wait as long as the other side likes, at an exit, too


def _fetch(address: str, line: _Line) -> KeySet:
    request = urllib.request.Request(address, headers={"accept": "application/json"})
    # Without TLS a proxy would be asked, and might answer, where the address is this machine.
    direct = [urllib.request.ProxyHandler({})] if request.type == "http" else []
    opener = urllib.request.build_opener(_NoRedirect, _OnLine(line), *direct)
    try:
        with opener.open(request, timeout=_WAIT_SECONDS) as answer:
            return KeySet.parse(_body(answer))
    except (OSError, ValueError, HTTPException) as error:
        raise ConfigError(f"cannot fetch '{address}': {error}") from error
    except ConfigError as error:
        raise ConfigError(f"'{address}': {error}") from error


def _body(answer: Any) -> bytes:
    """The body of an answer, unless it is too large."""
    data = bytearray()
    while part := answer.read1(1 << 16):
        data += part
        if len(data) > _MOST_BYTES:
            raise ConfigError(f"it is larger than {_MOST_BYTES} bytes")
    return bytes(data)
