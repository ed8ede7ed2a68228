"""Opening a link to a model process so that nothing is left of one that fails."""

from __future__ import annotations

from penstock.hosting.connection import Connection


async def opened(connection: Connection) -> None:
    """Open the link; raises what the backend raised, with the process gone."""
    try:
        await connection.open()
    except BaseException:
        await connection.kill()
        raise
