"""Bodies of calls that control the server: small, and read only where the call may be made."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from gateway.control_calls import asked_before_the_body
from gateway.serving import serving
from gateway.test_engine import EngineServer
from penstock.gateway.control_bodies import LARGEST
from penstock.server.control_policy import ControlPolicy
from penstock.shared_memory.registry import Regions

SMALL = [
    "/v2/models/m/engine/sleep",
    "/v2/models/m/adapters/a",
    "/v2/repository/index",
    "/v2/logging",
    "/v2/trace/setting",
    "/v2/models/m/trace/setting",
    "/v2/systemsharedmemory/region/r/register",
    "/v2/cudasharedmemory/region/r/register",
]


class _OpenServer(EngineServer):
    """Refuses nothing by itself."""

    regions = Regions(allowed=True)
    control_policy = ControlPolicy(trace=True, log=True)

    async def trace_settings(self, *_: object) -> dict[str, list[str]]:
        return {}


@pytest.mark.parametrize("path", SMALL)
async def test_body_above_the_limit_is_refused_before_it_comes(path: str) -> None:
    assert await asked_before_the_body(_OpenServer(), path, LARGEST + 1) == 400


async def test_body_in_chunks_is_read_up_to_the_limit(client: httpx.AsyncClient) -> None:
    async def chunks() -> object:
        for _ in range(3):
            yield b" " * (LARGEST // 2)

    answer = await client.post("/v2/repository/index", content=chunks())  # type: ignore[arg-type]
    assert answer.status_code == 400
    assert "maximum allowed value of 65536 bytes" in answer.json()["error"]


async def test_body_of_the_limit_is_read(client: httpx.AsyncClient) -> None:
    body = b'{"ready":true}'.ljust(LARGEST)
    assert (await client.post("/v2/repository/index", content=body)).status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/repository/models/m/load", 503),
        ("/v2/repository/models/m/unload", 503),
        ("/v2/systemsharedmemory/region/r/register", 501),
        ("/v2/cudasharedmemory/region/r/register", 501),
    ],
)
async def test_nothing_is_read_for_what_is_not_allowed(
    tmp_path: Path, path: str, status: int
) -> None:
    async with serving(tmp_path, []) as server:
        assert await asked_before_the_body(server, path) == status


async def test_loads_may_be_longer(client: httpx.AsyncClient) -> None:
    """They may bring files."""
    body = b"{}".ljust(LARGEST + 1)
    answer = await client.post("/v2/repository/models/m/load", content=body)
    assert answer.status_code == 200
