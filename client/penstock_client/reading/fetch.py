"""Reads the public endpoints of a server over HTTP, within bounds of time and size."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any

from penstock_client.reading.address import Address
from penstock_client.reading.counters import ModelKey
from penstock_client.reading.kserve import ServerAnswers, model_statistics
from penstock_client.reading.metrics_page import MetricsPage, read_page
from penstock_client.reading.views import ModelEntry, entries_of, server_of

CONNECT_SECONDS = 5.0
"""Seconds that a server may take for a connection, and for each part of an answer."""
ANSWER_SECONDS = 30.0
"""Seconds that an answer may take as a whole."""
MOST_BYTES = 64 << 20
"""The largest answer that is read, in bytes."""
INDEX_SECONDS = 5.0
"""Seconds between readings of the repository index, for which the server lists its folders."""

_CHUNK = 1 << 16
_NOT_OF_THE_FORM = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


class FetchError(Exception):
    """An endpoint did not answer, or not with what it should; the message says why."""


def fetch(address: Address, path: str, method: str = "GET") -> tuple[int, bytes]:
    """Status and body of an answer; raises `FetchError`."""
    kind = HTTPSConnection if address.secure else HTTPConnection
    connection = kind(address.host, address.port, timeout=CONNECT_SECONDS)
    deadline = time.monotonic() + ANSWER_SECONDS
    try:
        connection.request(method, address.path + path, headers={"Connection": "close"})
        answer = connection.getresponse()
        return answer.status, _body(answer, deadline)
    except TimeoutError:
        raise FetchError(f"no answer within {CONNECT_SECONDS:g} s") from None
    except OSError as error:
        raise FetchError((error.strerror or str(error) or type(error).__name__).lower()) from error
    except BadStatusLine:
        raise FetchError("not an answer of HTTP: is it the port of gRPC?") from None
    except (HTTPException, UnicodeError) as error:
        raise FetchError(f"not an answer of HTTP: {error or type(error).__name__}") from error
    finally:
        connection.close()


def _body(answer: HTTPResponse, deadline: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := answer.read1(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise FetchError(f"the answer is larger than {MOST_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise FetchError(f"the answer took longer than {ANSWER_SECONDS:g} s")
    return b"".join(parts)


def fetch_page(address: Address) -> MetricsPage:
    """The metrics page; raises `FetchError`."""
    status, body = fetch(address, "" if address.path else "/metrics")
    if status != 200:
        raise FetchError(f"HTTP status {status} instead of a metrics page")
    try:
        return read_page(body.decode("utf-8", "replace"))
    except (OverflowError, ValueError) as error:
        raise FetchError(f"the metrics page has a number that cannot be: {error}") from error


class AnswersFetcher:
    """Asks the HTTP endpoint; keeps the repository index between its readings."""

    def __init__(self, address: Address, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._states: dict[ModelKey, ModelEntry] = {}
        self._states_at = float("-inf")
        self._server = ""

    def fetch(self) -> ServerAnswers:
        """Raises `FetchError`; what a server refuses to tell is left out."""
        status, _ = fetch(self._address, "/v2/health/ready")
        self._read_index()
        statistics = self._json("/v2/models/stats") or {}
        try:
            counters, batches = model_statistics(statistics)
        except _NOT_OF_THE_FORM as error:
            raise FetchError(f"/v2/models/stats is not of KServe's form: {error}") from error
        return ServerAnswers(status == 200, self._server, self._states, counters, batches)

    def _read_index(self) -> None:
        if self._clock() - self._states_at < INDEX_SECONDS:
            return
        try:
            server = server_of(self._json("/v2") or {})
            self._server = f"{server.name} {server.version}".strip()
            index = entries_of(self._json("/v2/repository/index", "POST") or [])
            self._states = {ModelKey(each.name, each.version): each for each in index}
        except _NOT_OF_THE_FORM as error:
            raise FetchError(f"the repository index is not of KServe's form: {error}") from error
        self._states_at = self._clock()

    def _json(self, path: str, method: str = "GET") -> Any:
        """The answer as JSON; `None` where the server does not tell."""
        status, body = fetch(self._address, path, method)
        if status != 200:
            return None
        try:
            return json.loads(body)
        except (RecursionError, ValueError) as error:
            raise FetchError(f"{path} is not JSON: {error}") from error
