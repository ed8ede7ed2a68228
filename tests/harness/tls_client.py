"""A TLS client that shows what becomes of its handshake, and what it may resume."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import NamedTuple


class Shaken(NamedTuple):
    """A handshake that went well: what the server showed, and what it can be resumed by."""

    certificate: bytes
    session: ssl.SSLSession | None
    resumed: bool


async def shake(
    port: int, context: ssl.SSLContext, sent: bytes, session: ssl.SSLSession | None = None
) -> Shaken | None:
    """Connect, send, and read the first bytes; `None` if the server refuses the client.

    With TLS 1.3, a client that is refused sees it only when it reads.
    """
    return await asyncio.to_thread(_shake, port, context, sent, session)


def _shake(
    port: int, context: ssl.SSLContext, sent: bytes, session: ssl.SSLSession | None
) -> Shaken | None:
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as shaken,
        ):
            shaken.sendall(sent)
            if not shaken.recv(1):
                return None
            shown = shaken.getpeercert(binary_form=True) or b""
            return Shaken(shown, shaken.session, bool(shaken.session_reused))
    except (ssl.SSLError, ConnectionError):
        return None
