"""Calls that control a server, by a client that announces a body and waits with it."""

from __future__ import annotations

import asyncio

from gateway.serving import LOCAL
from harness.raw_clients import hang_up
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.server.server import InferenceServer


async def asked_before_the_body(
    server: InferenceServer, path: str, size: int = 1000, method: str = "POST"
) -> int:
    """The status for a body of which not one byte has been sent."""
    async with open_gateway(server, LOCAL, ExitDeadline(1)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
        writer.write(head.encode())
        line = await reader.readline()
        await hang_up(writer)
    return int(line.split()[1])
