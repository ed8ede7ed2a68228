"""What a client's address is called in gRPC."""

from __future__ import annotations

import asyncio
import socket


def peer_name(transport: asyncio.BaseTransport) -> str:
    """`ipv4:HOST:PORT`, `ipv6:[HOST]:PORT` or `unix:PATH`."""
    found = transport.get_extra_info("socket")
    address = transport.get_extra_info("peername")
    if found is not None and found.family == socket.AF_UNIX:
        return f"unix:{address or ''}"
    if not address:
        return ""
    host, port = address[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
