"""What the connections of a port share: their limits, and the handlers that outlive them."""

from __future__ import annotations

import asyncio

import pytest

from fakes import turns
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.connections import open_connections
from penstock.gateway.connections.open_connections import (
    ConnectionRules,
    OpenConnections,
    limits_of,
)
from penstock.http1.limits import HttpLimits
from penstock.settings import HttpSettings


def test_each_setting_is_the_limit_of_its_name() -> None:
    settings = HttpSettings(
        max_header_size=1001,
        max_header_count=1002,
        header_timeout_secs=1003,
        body_timeout_secs=1004,
        idle_timeout_secs=1005,
        send_timeout_secs=1006,
    )
    assert limits_of(settings) == HttpLimits(
        max_head_size=1001,
        max_fields=1002,
        opening=1003,
        body_period=1004,
        idle=1005,
        sending=1006,
    )


@pytest.mark.interpreted("it changes a number, which compiled code has taken in")
async def test_handlers_of_departed_clients_have_the_rest_of_the_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_connections, "_ABORT_SECONDS", 0.0)
    connections, work = OpenConnections(ConnectionRules()), asyncio.Event()
    handler = asyncio.create_task(work.wait())
    connections.tasks.add(handler)
    closing = asyncio.create_task(connections.close(ExitDeadline(20)))
    await turns()
    assert not closing.done()
    work.set()
    await closing
    assert handler.done()
    assert not handler.cancelled()


async def test_handlers_that_go_on_after_the_grace_are_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = OpenConnections(ConnectionRules())
    handler = asyncio.create_task(asyncio.Event().wait())
    connections.tasks.add(handler)
    await connections.close(ExitDeadline(0))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(handler, 20)
