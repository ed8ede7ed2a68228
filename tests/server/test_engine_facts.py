"""What engines tell of themselves, and askers who do not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from fakes.instances import FakeInstance, make_model
from penstock.server.engine_answers import told_adapters


class _Stuck(FakeInstance):
    """Carries no command out."""

    def __init__(self) -> None:
        super().__init__("m_0")
        self.stuck = asyncio.Event()
        self.gone = asyncio.Event()

    async def control(self, action: str, arguments: Mapping[str, Any]) -> Any:
        self.stuck.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.gone.set()
            raise


async def test_an_asker_that_leaves_takes_its_question_back() -> None:
    engine = _Stuck()
    asker = asyncio.create_task(told_adapters(make_model(engine)))
    await engine.stuck.wait()
    asker.cancel()
    await asyncio.wait([asker])
    await engine.gone.wait()
    assert asker.cancelled()
