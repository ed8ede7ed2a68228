"""A model process that ends in the middle of traced requests."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from backends.python.traced import models
from backends.python.traced.house import TRACED, message, opened, own_marks, timeline_of
from penstock.core.errors import UnavailableError


@pytest.mark.slow
@pytest.mark.contract("T-23")
async def test_traces_end_with_the_error(tmp_path: Path) -> None:
    """Both of two requests, with the calls that led to them; then the next process is traced."""
    repository = {"dying": (models.DYING, ""), "leaf": (models.LEAF, "")}
    async with opened(tmp_path, repository) as house:
        calls = [
            house.client.call("ModelInfer", message("dying", text), metadata=[TRACED])
            for text in ("wait", "die")
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            assert isinstance(answer, grpc.aio.AioRpcError)
            assert answer.code() is grpc.StatusCode.UNAVAILABLE
        for _ in calls:
            trace = await house.trace()
            dying = timeline_of(trace, "dying")
            assert isinstance(dying.error, UnavailableError)
            assert "exited with status 7" in dying.error.message
            assert dying.end >= dying.begin > 0
            assert own_marks(dying) == []  # died with the process
            assert trace.root.end
        assert (await house.traced("leaf"))[0] is not None
