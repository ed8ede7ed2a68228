"""Commands to the real engine."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from backends.generation import plain, start, until, usage
from penstock.core.errors import InferenceError, InvalidRequestError, UnsupportedError
from penstock.testing import RunningInstance

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def text(instance: RunningInstance, **sampling: Any) -> str:
    pieces = [plain(r)["text_output"][0] async for r in start(instance, **sampling)]
    return "".join(pieces)


async def test_paused_engine_goes_on_where_it_was(instance: RunningInstance) -> None:
    control, backend = instance.backend.control, instance.backend
    alone = await text(instance, max_tokens=200)
    async with aclosing(start(instance, max_tokens=200)) as responses:
        pieces = [plain(await anext(responses))["text_output"][0]]
        assert await control("pause", {"mode": "keep", "clear_cache": False}) == {"paused": True}
        assert backend.unready() == "the engine is paused"
        assert await backend.healthy()
        waiting = asyncio.ensure_future(text(instance, max_tokens=5))
        made = backend.metrics()["penstock_llm_generation_tokens_total"]
        for _ in range(5):  # turns of the engine
            await control("reset-prefix-cache", {})
        assert backend.metrics()["penstock_llm_generation_tokens_total"] == made
        assert not waiting.done()
        assert await control("resume", {}) == {"paused": False}
        pieces += [plain(response)["text_output"][0] async for response in responses]
    assert "".join(pieces) == alone
    assert await waiting
    assert backend.unready() == ""


async def test_pause_may_end_what_is_in_flight(instance: RunningInstance) -> None:
    async with aclosing(
        start(instance, inputs={"return_finish_reason": True}, max_tokens=900)
    ) as responses:
        await anext(responses)
        await instance.backend.control("pause", {})
        rest = [plain(response) async for response in responses]
    await instance.backend.control("resume", {})
    assert rest[-1]["finish_reason"] == ["abort"]
    await until(lambda: usage(instance) == (0, 0, 0.0), 0.01)


async def test_engine_that_sleeps_refuses_requests_until_it_wakes(
    instance: RunningInstance,
) -> None:
    """At level 0, which any engine can; it schedules nothing then."""
    control, backend = instance.backend.control, instance.backend
    assert await control("sleep", {"level": 0}) == {"asleep": True, "level": 0}
    assert backend.unready() == "the engine is asleep"
    assert await backend.healthy()
    with pytest.raises(InferenceError, match="the engine is asleep; the action 'wake' wakes it"):
        await text(instance)
    assert await control("wake", {}) == {"asleep": False}
    assert backend.unready() == ""
    assert await text(instance, max_tokens=3)


async def test_prefix_cache_is_reset(instance: RunningInstance) -> None:
    assert await instance.backend.control("reset-prefix-cache", {}) == {"reset": True}


@pytest.mark.parametrize(
    ("action", "arguments", "error", "why"),
    [
        ("sleep", {}, InvalidRequestError, "at level 0 only: .* 'enable_sleep_mode'"),
        ("sleep", {"level": 3}, InvalidRequestError, "'level' must be 0, 1 or 2"),
        ("sleep", {"level": [1]}, InvalidRequestError, "'level' must be 0, 1 or 2"),
        (
            "sleep",
            {"levl": 1},
            InvalidRequestError,
            "unknown argument 'levl'; did you mean 'level'",
        ),
        ("pause", {"mode": "x"}, InvalidRequestError, "'abort', 'wait' or 'keep'"),
        ("pause", {"clear_cache": 1}, InvalidRequestError, "'clear_cache' must be true or false"),
        ("wake", {"tags": ["x"]}, InvalidRequestError, "'tags' must be a list of"),
        ("wake", {"tags": "weights"}, InvalidRequestError, "'tags' must be a list of"),
        ("resume", {"x": 1}, InvalidRequestError, "unknown argument 'x'"),
        ("slep", {}, UnsupportedError, "does not know the action 'slep'; did you mean 'sleep'"),
    ],
)
async def test_wrong_command_changes_nothing(
    instance: RunningInstance,
    action: str,
    arguments: dict[str, Any],
    error: type[InferenceError],
    why: str,
) -> None:
    with pytest.raises(error, match=why):
        await instance.backend.control(action, arguments)
    assert instance.backend.unready() == ""
    assert await text(instance, max_tokens=2)
