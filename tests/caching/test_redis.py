"""The cache on a real Redis server, where there is one."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes import turns
from penstock.caching.redis import RedisCache
from penstock.core.errors import ConfigError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import DataType, Tensor

redis = pytest.importorskip("redis", reason="the extra 'redis' is not installed")
_SERVER = shutil.which("redis-server")

pytestmark = [
    pytest.mark.contract("RC-07"),
    pytest.mark.needs("redis-server", "" if _SERVER else "redis-server is not installed"),
]

RESPONSE = InferenceResponse({"OUT": Tensor(DataType.UINT8, (3,), b"abc")}, {"p": 1}, final=True)


@contextmanager
def _serving(directory: Path, *arguments: str, tls: bool = False) -> Iterator[int]:
    """A Redis server of this test alone; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ports = ("--port", "0", "--tls-port", str(port)) if tls else ("--port", str(port))
    settings = ("--save", "", "--bind", "127.0.0.1", "--dir", str(directory))
    command = ["redis-server", *ports, *settings, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert any("Ready to accept connections" in line for line in process.stdout)
        yield port
    finally:
        process.terminate()
        process.stdout.close()
        process.wait(10)


async def _open(port: int, **settings: str) -> RedisCache:
    return await RedisCache.open({"host": "127.0.0.1", "port": str(port), **settings})


async def _look_up(cache: RedisCache, key: bytes) -> InferenceResponse | None:
    found: asyncio.Future[InferenceResponse | None] = asyncio.get_running_loop().create_future()
    cache.lookup(key, found.set_result)
    return await asyncio.wait_for(found, 60)


async def _insert(cache: RedisCache, key: bytes, response: InferenceResponse = RESPONSE) -> None:
    done = asyncio.Event()
    cache.insert(key, response, done.set)
    await asyncio.wait_for(done.wait(), 60)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with _serving(tmp_path_factory.mktemp("redis")) as number:
        yield number


@asynccontextmanager
async def _hung(port: int) -> AsyncIterator[None]:
    """The server takes what it is sent, and does nothing with it."""
    client: Any = redis.asyncio.Redis(port=port)
    pid = (await client.info())["process_id"]
    await client.aclose()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_redis_that_hangs_is_a_miss(port: int) -> None:
    cache = await _open(port, wait_timeout="50")
    await _insert(cache, b"hung")
    async with _hung(port):
        assert await _look_up(cache, b"hung") is None
        await _insert(cache, b"hung too")
    assert await _look_up(cache, b"hung") is not None
    await cache.close()


async def test_an_inserted_response_is_found_by_every_server(port: int) -> None:
    one, other = await _open(port), await _open(port)
    assert await _look_up(one, b"k1") is None
    await _insert(one, b"k1")
    found = await _look_up(other, b"k1")
    assert found is not None
    assert bytes(found.outputs["OUT"].buffer) == b"abc"
    assert (found.parameters, found.final) == ({"p": 1}, True)
    counted = one.statistics
    assert (counted.lookups, counted.hits, counted.misses) == (1, 0, 1)
    assert counted.lookup_ns > 0
    assert counted.insertion_ns > 0
    assert (other.statistics.hits, other.statistics.misses) == (1, 0)
    for cache in (one, other):
        await cache.close()


async def test_many_requests_share_few_connections(port: int) -> None:
    cache = await _open(port, pool_size="2")
    await _insert(cache, b"k2")
    found = await asyncio.gather(*(_look_up(cache, b"k2") for _ in range(50)))
    assert all(found)
    await cache.close()


async def test_a_foreign_value_is_a_miss(port: int, caplog: pytest.LogCaptureFixture) -> None:
    cache = await _open(port)
    client: Any = redis.asyncio.Redis(port=port)
    await client.set(b"penstock:k3", b"something else")
    await client.aclose()
    with caplog.at_level(logging.WARNING):
        assert await _look_up(cache, b"k3") is None
    assert "the response cache cannot be used" in caplog.text
    await cache.close()


async def test_a_lost_server_is_a_miss_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with _serving(tmp_path) as number:
        cache = await _open(number)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert await _look_up(cache, b"k") is None
            await _insert(cache, b"k")
    assert len(caplog.records) == 1
    await cache.close()


async def test_closing_cancels_commands_in_flight(port: int) -> None:
    cache = await _open(port, socket_timeout="60000")
    async with _hung(port):
        cache.lookup(b"k", lambda _: pytest.fail("nobody answered"))
        await turns()
        async with asyncio.timeout(20):
            await cache.close()


async def test_a_password_is_needed_where_the_server_wants_one(tmp_path: Path) -> None:
    with _serving(tmp_path, "--requirepass", "secret") as number:
        cache = await _open(number, password="secret")
        await _insert(cache, b"k")
        assert await _look_up(cache, b"k") is not None
        await cache.close()
        for wrong in ({}, {"password": "wrong"}):
            with pytest.raises(
                ConfigError, match=r"Failed to initialize RedisCache: 127\.0\.0\.1:"
            ):
                await _open(number, **wrong)


async def test_a_server_that_does_not_answer_prevents_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number = probe.getsockname()[1]
    with pytest.raises(ConfigError, match=r"Failed to initialize RedisCache: 127\.0\.0\.1:"):
        await _open(number)


async def test_databases_are_apart(port: int) -> None:
    one, other = await _open(port, db="0"), await _open(port, db="1")
    await _insert(one, b"k4")
    assert await _look_up(other, b"k4") is None
    for cache in (one, other):
        await cache.close()


def _certificate(directory: Path, name: str) -> tuple[Path, Path]:
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return key, certificate


@pytest.mark.needs("openssl", "" if shutil.which("openssl") else "openssl is not installed")
async def test_tls_checks_the_certificate_for_the_name_that_is_said(tmp_path: Path) -> None:
    key, certificate = _certificate(tmp_path, "redis.example")
    files = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    settings = {"tls_enabled": "true", "cacert": str(certificate)}
    with _serving(tmp_path, *files, "--tls-auth-clients", "no", tls=True) as number:
        cache = await _open(number, sni="redis.example", **settings)
        await _insert(cache, b"k")
        assert await _look_up(cache, b"k") is not None
        await cache.close()
        with pytest.raises(ConfigError, match="Failed to initialize RedisCache"):
            await _open(number, sni="other.example", **settings)
