"""`RedisCache`: a response cache on a Redis server, which several servers may share (RC-07)."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
import time
from collections.abc import Callable, Coroutine, Mapping
from math import prod
from typing import Any

from penstock.caching import CacheStatistics, Found
from penstock.caching.redis_settings import RedisSettings
from penstock.core.errors import ConfigError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import DataType, Tensor

logger = logging.getLogger(__name__)

_PREFIX = b"penstock:"


class RedisCache:
    """A cache whose commands run in tasks beside the requests; failures are misses and are logged.

    Eviction is left to Redis (`maxmemory-policy`).
    """

    shared = True

    def __init__(self, client: Any, patience: float | None) -> None:
        """Requests wait for `client` so many seconds at most."""
        self.statistics = CacheStatistics()
        self._client = client
        self._patience = patience
        self._tasks: set[asyncio.Task[None]] = set()
        self._failing = False

    @classmethod
    async def open(cls, settings: Mapping[str, str]) -> RedisCache:
        """Connect, and check that the server answers; raises `ConfigError` if it does not."""
        wanted = RedisSettings.from_options(settings)
        client = _client(wanted)
        try:
            await client.ping()
        except Exception as error:  # redis, its connections and TLS raise many kinds
            await client.aclose()
            raise ConfigError(
                f"Failed to initialize RedisCache: {wanted.host}:{wanted.port}: {error}"
            ) from error
        # Else a server that hangs would hold requests for ever.
        return cls(client, _seconds(wanted.socket_timeout or wanted.wait_timeout))

    def lookup(self, key: bytes, found: Found) -> None:
        """Call `found` once Redis has answered."""
        self._start(self._lookup(key, found))

    def insert(self, key: bytes, response: InferenceResponse, done: Callable[[], None]) -> None:
        """Serialize the response now and send it; `done` is called once Redis has answered."""
        self._start(self._insert(key, pack(response), done))

    async def close(self) -> None:
        """Cancel commands in flight and disconnect."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._client.aclose()

    async def _lookup(self, key: bytes, found: Found) -> None:
        begun = time.monotonic_ns()
        response: InferenceResponse | None = None
        try:
            data = await self._answered(self._client.get(_PREFIX + key))
            response = None if data is None else unpack(data)
            self._failing = False
        except Exception as error:  # redis, its connections and TLS raise many kinds
            self._log_failure(error)
        statistics = self.statistics
        statistics.lookups += 1
        statistics.lookup_ns += time.monotonic_ns() - begun
        if response is None:
            statistics.misses += 1
        else:
            statistics.hits += 1
        found(response)

    async def _insert(self, key: bytes, data: bytes, done: Callable[[], None]) -> None:
        begun = time.monotonic_ns()
        try:
            await self._answered(self._client.set(_PREFIX + key, data))
        except Exception as error:  # as above
            self._log_failure(error)
        self.statistics.insertion_ns += time.monotonic_ns() - begun
        done()

    async def _answered(self, command: Coroutine[Any, Any, Any]) -> Any:
        """What Redis says to a command; raises `TimeoutError` where it says nothing."""
        asked = asyncio.get_running_loop().create_task(command)
        try:
            await asyncio.wait([asked], timeout=self._patience)
        finally:
            ended = asked.done()
            asked.cancel()
        if not ended:
            raise TimeoutError(f"there was no answer within {self._patience:g} s")
        return asked.result()

    def _log_failure(self, error: Exception) -> None:
        """Log a failure; in a row of failures only the first is a warning."""
        level = logging.DEBUG if self._failing else logging.WARNING
        logger.log(level, "the response cache cannot be used: %s", error)
        self._failing = True

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _client(settings: RedisSettings) -> Any:
    try:
        from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
    except ImportError as error:
        raise ConfigError(
            "the redis cache needs a package that is not installed; install it with: "
            "pip install 'penstock[redis]'"
        ) from error

    options: dict[str, Any] = {}
    connection = Connection
    if settings.tls_enabled:
        connection = _named(SSLConnection, settings.sni) if settings.sni else SSLConnection
        options = {
            "ssl_certfile": settings.cert or None,
            "ssl_keyfile": settings.key or None,
            "ssl_ca_certs": settings.cacert or None,
            "ssl_ca_path": settings.cert_dir or None,
        }
    pool = BlockingConnectionPool(
        max_connections=settings.pool_size,
        timeout=_seconds(settings.wait_timeout),
        connection_class=connection,
        host=settings.host,
        port=settings.port,
        # A server without accounts accepts a password without a user name only.
        username=settings.user if settings.password else None,
        password=settings.password or None,
        db=settings.db,
        socket_connect_timeout=_seconds(settings.connect_timeout),
        socket_timeout=_seconds(settings.socket_timeout),
        **options,
    )
    return Redis.from_pool(pool)


def _named(connection: Any, name: str) -> Any:
    """A connection class that expects a certificate for `name` rather than for the host."""

    class NamedConnection(connection):  # type: ignore[misc]
        def _connection_arguments(self) -> Mapping[str, Any]:
            return {**super()._connection_arguments(), "server_hostname": name}

    return NamedConnection


def _seconds(milliseconds: int) -> float | None:
    return milliseconds / 1000 or None


_MAGIC = b"PEN1"
_HEAD = struct.Struct("<4sI")
_NO_ENTRY = "these are not the bytes of a response"


def pack(response: InferenceResponse) -> bytes:
    """Serialize outputs and parameters: a header, a description in JSON, the elements."""
    tensors = response.outputs.items()
    about = {
        "outputs": [[name, t.datatype.value, t.shape, t.nbytes] for name, t in tensors],
        "parameters": dict(response.parameters),
    }
    description = json.dumps(about).encode()
    buffers = [bytes(tensor.buffer) for _, tensor in tensors]
    return b"".join([_HEAD.pack(_MAGIC, len(description)), description, *buffers])


def unpack(data: bytes) -> InferenceResponse:
    """Deserialize a packed response; raises `ValueError` for any other bytes."""
    if len(data) < _HEAD.size:
        raise ValueError(_NO_ENTRY)
    magic, length = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError(_NO_ENTRY)
    at = _HEAD.size + length
    try:
        about = json.loads(data[_HEAD.size : at])
        outputs: dict[str, Tensor] = {}
        for name, datatype, shape, size in about["outputs"]:
            outputs[name] = _tensor(DataType(datatype), shape, data[at : at + size], size)
            at += size
        parameters = dict(about["parameters"])
    except (TypeError, KeyError) as error:
        raise ValueError(_NO_ENTRY) from error
    if at != len(data):
        raise ValueError(_NO_ENTRY)
    return InferenceResponse(outputs, parameters, final=True)


def _tensor(datatype: DataType, shape: list[int], elements: bytes, size: int) -> Tensor:
    if len(elements) != size or (datatype.itemsize and size != prod(shape) * datatype.itemsize):
        raise ValueError(_NO_ENTRY)
    return Tensor(datatype, shape, elements)
