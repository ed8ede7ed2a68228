"""What the connections of a port share: their limits, and the handlers that outlive them."""

from __future__ import annotations

import asyncio

import pytest

from fakes import turns
from penstock.core.exit_deadline import ExitDeadline
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


class _Noted(ExitDeadline):
    """Tells whether connections were cut off."""

    over = False

    def cut(self, number: int) -> None:
        self.over = True


@pytest.mark.interpreted("its deadline is derived from the server's, which is compiled")
async def test_handlers_of_departed_clients_have_the_rest_of_the_grace() -> None:
    connections, work, grace = OpenConnections(ConnectionRules()), asyncio.Event(), _Noted(20)
    handler = asyncio.create_task(work.wait())
    connections.tasks.add(handler)
    closing = asyncio.create_task(connections.close(grace))
    await turns()
    assert not grace.over
    work.set()
    await asyncio.wait_for(closing, 20)
    assert handler.done()
    assert not handler.cancelled()


async def test_handlers_that_go_on_after_the_grace_are_cancelled() -> None:
    connections = OpenConnections(ConnectionRules())
    handler = asyncio.create_task(asyncio.Event().wait())
    connections.tasks.add(handler)
    await connections.close(ExitDeadline(0))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(handler, 20)
