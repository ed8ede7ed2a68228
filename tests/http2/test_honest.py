"""Whatever an honest client does, it gets its answers: see `http2.honest`."""

from __future__ import annotations

import pytest

from http2.fuzzing.services import Methods
from http2.honest.visit import Visit
from penstock.http2.frames import Limits
from penstock.rpc.native.routes import Routes
from penstock.rpc.native.server_state import ServerState
from penstock.settings import KeepaliveSettings

SMALL = Limits(
    max_concurrent_streams=8,
    max_frame_size=1 << 14,
    stream_window=20_000,
    connection_window=70_000,
    max_message_size=30_000,
    max_inflated_size=30_000,
)
USUAL = Limits(max_message_size=30_000)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [SMALL, USUAL], ids=["small", "usual"])
async def test_every_call_is_answered_right(limits: Limits) -> None:
    read = Routes([Methods().service()]).read
    server = ServerState(limits, KeepaliveSettings())
    for seed in range(40):
        visit = Visit(server, read, seed)
        await visit.run(100)
        visit.leave()
    assert not server.tasks
