"""The metrics port."""

from __future__ import annotations

import httpx
import pytest

from penstock.gateway.metrics import open_metrics
from penstock.settings import MetricsSettings

_LOCAL = MetricsSettings(address="127.0.0.1", port=0)


async def _scrape(accept: str) -> tuple[bytes, str]:
    return f"{accept}\n".encode(), "text/plain; charset=utf-8"


async def _ask(method: str, path: str, *accept: str) -> httpx.Response:
    headers = [("Accept", each) for each in accept]
    async with (
        open_metrics(_scrape, _LOCAL) as port,
        httpx.AsyncClient(headers=headers, verify=False) as client,
    ):
        return await client.request(method, f"http://127.0.0.1:{port}{path}")


@pytest.mark.contract("H-23", "ME-01")
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/metrics", "*/*\n"),
        ("/metrics/", "*/*\n"),
        ("/metrics?x=1", "*/*\n"),
        ("/", ""),
        ("/x", ""),
    ],
)
async def test_page_is_at_its_path_and_all_others_are_empty(path: str, text: str) -> None:
    answer = await _ask("GET", path)
    assert (answer.status_code, answer.text) == (200, text)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.contract("H-23")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_page_can_only_be_read(method: str) -> None:
    answer = await _ask(method, "/metrics")
    assert (answer.status_code, answer.json()) == (405, {"error": "Method Not Allowed"})
    assert answer.headers["allow"] == "GET"


async def test_every_accept_header_counts() -> None:
    """A client may write the list as several fields (RFC 9110, 5.3)."""
    answer = await _ask("GET", "/metrics", "text/plain;q=0.5", "application/openmetrics-text")
    assert answer.text == "text/plain;q=0.5,application/openmetrics-text\n"
