"""Opening a link to a model process so that nothing is left of one that fails.

Apart from `process`, which is compiled: compiled code must not wait in a handler of exceptions.
"""

from __future__ import annotations

from penstock.hosting.parent.model_process import Connection


async def open_or_kill(connection: Connection) -> None:
    """Open the link; raises what the backend raised, with the process gone."""
    try:
        await connection.open()
    except BaseException:
        await connection.kill()
        raise
