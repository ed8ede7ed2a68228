"""Asks a port with mutual TLS as a stranger does, and as a client with a certificate."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx


async def statuses_over_tls(
    plain: httpx.AsyncClient, certificates: Path, path: str
) -> tuple[int | None, int | None, int | None]:
    """The statuses in the clear, without a certificate, and with one; `None` for no answer."""
    stranger = ssl.create_default_context(cafile=str(certificates / "root.pem"))
    known = ssl.create_default_context(cafile=str(certificates / "root.pem"))
    known.load_cert_chain(certificates / "client.pem", certificates / "client.key")
    port = plain.base_url.port
    url = f"https://localhost:{port}{path}"
    async with (
        httpx.AsyncClient(verify=stranger) as without,
        httpx.AsyncClient(verify=known) as client,
    ):
        return await _status(plain, path), await _status(without, url), await _status(client, url)


async def _status(client: httpx.AsyncClient, url: str) -> int | None:
    try:
        return (await client.get(url)).status_code
    except httpx.TransportError:
        return None
