"""The transport over HTTP, by aiohttp, which `pip install 'penstock-client[http]'` brings."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from penstock_client.client import http_messages as messages
from penstock_client.client.errors import (
    InternalError,
    InvalidArgumentError,
    connection_lost,
    deadline_exceeded,
    error_of,
    no_server,
)
from penstock_client.client.request import InferRequest, Result
from penstock_client.client.transport import Connection, Tls
from penstock_client.reading.address import ServerAddress
from penstock_client.reading.events import EventStream, data_of
from penstock_client.reading.views import (
    ModelEntry,
    ModelMetadata,
    ModelStatistics,
    ServerMetadata,
    entries_of,
    metadata_of,
    server_of,
    statistics_of,
)

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

_CONNECTIONS = 256
"""Connections to one server; further requests wait for one of them."""

_HEAD_SIZE = "inference-header-content-length"
_ALIASES = "/v2/repository/aliases"
_CODES = {
    400: 3,
    401: 16,
    403: 7,
    404: 5,
    409: 6,
    413: 8,
    429: 8,
    499: 1,
    500: 13,
    501: 12,
    503: 14,
    504: 4,
}
"""gRPC codes of HTTP statuses."""


class HttpTransport:
    """The calls to one server over a pool of connections."""

    def __init__(self, address: ServerAddress, connection: Connection) -> None:
        try:
            import aiohttp
        except ImportError:
            raise InvalidArgumentError(
                "addresses of HTTP need aiohttp: pip install 'penstock-client[http]',"
                " or use the gRPC address"
            ) from None
        self.address = address
        self._aiohttp = aiohttp
        self._headers = dict(connection.headers)
        self._tls = _tls(connection.tls) if address.secure else False
        self._session: aiohttp.ClientSession | None = None

    @property
    def _http(self) -> aiohttp.ClientSession:
        """The session, which is made on the event loop that uses it."""
        if self._session is None:
            aiohttp = self._aiohttp
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=self._tls),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                headers=self._headers,
            )
        return self._session

    # -- inference ----------------------------------------------------------------------------

    async def infer(self, request: InferRequest, timeout: float | None) -> Result:
        """The only response of a model."""
        body, head_size = messages.encode(request)
        headers = {_HEAD_SIZE: str(head_size), "content-type": "application/octet-stream"}
        path = f"{_model(request.model, request.version)}/infer"
        sending = self._http.post(self._url(path), data=body, headers=headers)
        async with self._guarded(timeout), sending as reply:
            answer = await reply.read()
            self._check(reply.status, answer, reply.headers)
        size = int(reply.headers.get(_HEAD_SIZE, len(answer)))
        return messages.decode(answer, size, request)

    async def stream(
        self, request: InferRequest, timeout: float | None
    ) -> AsyncGenerator[Result, None]:
        """The responses of a model, as server-sent events; closing cancels the request."""
        content = messages.encode_generate(request)
        url = self._url(f"{_model(request.model, request.version)}/generate_stream")
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        metadata = await self.model_metadata(request.model, request.version, timeout)
        with self._translated():
            async with asyncio.timeout_at(end):
                reply = await self._http.post(url, data=content)
            try:
                if reply.status != 200:
                    self._check(reply.status, await reply.read(), reply.headers)
                events = _events(reply.content)
                # No timeout may be pending while the caller has its turn.
                while (data := await _next(events, end)) is not None:
                    event = messages.event_of(data, str(self.address))
                    yield messages.decode_event(event, metadata, request.model)
            finally:
                reply.close()  # in the middle, this is how the server learns of it

    # -- health and views ---------------------------------------------------------------------

    async def live(self, timeout: float | None) -> bool:
        """Whether the server runs."""
        return await self._healthy("/v2/health/live", timeout)

    async def ready(self, timeout: float | None) -> bool:
        """Whether the server takes requests."""
        return await self._healthy("/v2/health/ready", timeout)

    async def model_ready(self, model: str, version: str, timeout: float | None) -> bool:
        """Whether a model takes requests."""
        return await self._healthy(f"{_model(model, version)}/ready", timeout)

    async def server_metadata(self, timeout: float | None) -> ServerMetadata:
        """The metadata of the server."""
        return server_of(await self._json("GET", "/v2", timeout))

    async def model_metadata(
        self, model: str, version: str, timeout: float | None
    ) -> ModelMetadata:
        """The inputs and outputs of a model."""
        return metadata_of(await self._json("GET", _model(model, version), timeout))

    async def model_config(self, model: str, version: str, timeout: float | None) -> dict[str, Any]:
        """The configuration of a model."""
        told: dict[str, Any] = await self._json("GET", f"{_model(model, version)}/config", timeout)
        return told

    async def statistics(
        self, model: str, version: str, timeout: float | None
    ) -> list[ModelStatistics]:
        """The counters of a model version, a model, or all."""
        path = f"{_model(model, version)}/stats" if model else "/v2/models/stats"
        told = await self._json("GET", path, timeout)
        return [statistics_of(each) for each in told.get("model_stats", ())]

    # -- repository ---------------------------------------------------------------------------

    async def index(self, ready_only: bool, timeout: float | None) -> list[ModelEntry]:
        """The models of the repository."""
        told = await self._json("POST", "/v2/repository/index", timeout, {"ready": ready_only})
        return entries_of(told)

    async def load(
        self, model: str, parameters: Mapping[str, str | bytes], timeout: float | None
    ) -> None:
        """Load a model, or load it anew."""
        plain = {
            name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for name, value in parameters.items()
        }
        path = f"/v2/repository/models/{quote(model, safe='')}/load"
        await self._json("POST", path, timeout, {"parameters": plain} if plain else {})

    async def unload(self, model: str, dependents: bool, timeout: float | None) -> None:
        """Unload a model, and those that it consists of."""
        path = f"/v2/repository/models/{quote(model, safe='')}/unload"
        parameters = {"parameters": {"unload_dependents": dependents}}
        await self._json("POST", path, timeout, parameters)

    # -- aliases ------------------------------------------------------------------------------

    async def aliases(self, timeout: float | None) -> list[dict[str, Any]]:
        """Every alias, as it is defined."""
        found: list[dict[str, Any]] = await self._json("GET", _ALIASES, timeout)
        return found

    async def alias(self, name: str, timeout: float | None) -> dict[str, Any]:
        """An alias, its traffic and its history."""
        return await self._alias("GET", name, timeout)

    async def set_alias(
        self, name: str, definition: Mapping[str, Any], timeout: float | None
    ) -> dict[str, Any]:
        """Make an alias, or change it."""
        return await self._alias("POST", name, timeout, dict(definition))

    async def remove_alias(self, name: str, timeout: float | None) -> None:
        """Remove an alias."""
        await self._alias("DELETE", name, timeout)

    async def promote_alias(
        self, name: str, plan: Mapping[str, Any], timeout: float | None
    ) -> dict[str, Any]:
        """Give a target more and more."""
        return await self._alias("POST", name, timeout, dict(plan), "/promote")

    async def roll_back_alias(self, name: str, timeout: float | None) -> dict[str, Any]:
        """Give the first target all."""
        await self._alias("POST", name, timeout, {}, "/rollback")
        return await self.alias(name, timeout)

    async def _alias(
        self, method: str, name: str, timeout: float | None, body: Any = None, verb: str = ""
    ) -> dict[str, Any]:
        path = f"{_ALIASES}/{quote(name, safe='')}{verb}"
        told: dict[str, Any] = await self._json(method, path, timeout, body)
        return told

    async def register(self, name: str, key: str, size: int, timeout: float | None) -> None:
        """Make shared memory known to the server."""
        path = f"/v2/systemsharedmemory/region/{quote(name, safe='')}/register"
        await self._json("POST", path, timeout, {"key": key, "offset": 0, "byte_size": size})

    async def unregister(self, name: str, timeout: float | None) -> None:
        """Have the server forget shared memory."""
        path = f"/v2/systemsharedmemory/region/{quote(name, safe='')}/unregister"
        await self._json("POST", path, timeout, {})

    async def close(self) -> None:
        """Close all connections; calls that are open end."""
        if self._session is not None:
            await self._session.close()

    # -- calls and errors ---------------------------------------------------------------------

    def _url(self, path: str) -> URL:
        from yarl import URL  # aiohttp's own

        return URL(f"{self.address}{path}", encoded=True)

    async def _healthy(self, path: str, timeout: float | None) -> bool:
        async with self._guarded(timeout), self._http.get(self._url(path)) as reply:
            return reply.status == 200

    async def _json(self, method: str, path: str, timeout: float | None, body: Any = None) -> Any:
        content = None if body is None else orjson.dumps(body)
        sending = self._http.request(method, self._url(path), data=content)
        async with self._guarded(timeout), sending as reply:
            answer = await reply.read()
            self._check(reply.status, answer, reply.headers)
        if not answer:
            return {}
        try:
            return orjson.loads(answer)
        except orjson.JSONDecodeError:
            text = "the answer is not JSON: this is not a server of the KServe v2 protocol"
            raise InternalError(text, str(self.address)) from None

    def _check(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        if status != 200:
            after = headers.get("retry-after", "")
            text = messages.error_text(body, status)
            seconds = float(after) if after.isdigit() else None
            raise error_of(_CODES.get(status, 2), text, str(self.address), seconds)

    @asynccontextmanager
    async def _guarded(self, timeout: float | None) -> AsyncIterator[None]:
        """A deadline, and errors of aiohttp as those of the client."""
        with self._translated():
            async with asyncio.timeout(timeout):
                yield

    @contextmanager
    def _translated(self) -> Iterator[None]:
        aiohttp, address = self._aiohttp, str(self.address)
        try:
            yield
        except TimeoutError:
            raise deadline_exceeded(address) from None
        except aiohttp.ClientConnectorError as error:
            raise no_server(address, _reason(error.os_error)) from None
        except aiohttp.ClientResponseError:
            reason = "it does not speak HTTP: is this its gRPC port?"
            raise no_server(address, reason) from None
        except aiohttp.ClientError as error:
            raise connection_lost(address, str(error) or type(error).__name__) from None


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The data of a body's events, of any length."""
    stream = EventStream()
    async for part, _ in content.iter_chunks():
        for event in stream.take(part):
            if data := data_of(event):
                yield data


async def _next(events: AsyncIterator[bytes], end: float | None) -> bytes | None:
    """The next event, until a time of the loop's clock; `None` behind the last."""
    async with asyncio.timeout_at(end):
        return await anext(events, None)


def _reason(error: OSError) -> str:
    """The operating system's reason why there is no connection."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return "the name is not known" if isinstance(error, socket.gaierror) else str(error)


def _model(model: str, version: str) -> str:
    path = f"/v2/models/{quote(model, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path


def _tls(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.cert_file is not None:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    return context
