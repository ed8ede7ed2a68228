"""Calls of an engine that are not requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from penstock_backends.vllm.arguments.engine_args import EngineArguments
from penstock_backends.vllm.control import EngineControl
from penstock_backends.vllm.engine_calls import EngineCalls


class _Llm:
    """The part of vLLM's `AsyncLLM` that sleeps; lists what is called."""

    vllm_config = SimpleNamespace(model_config=SimpleNamespace(enable_sleep_mode=True))

    def __init__(self) -> None:
        self.called: list[tuple[Any, ...]] = []

    async def sleep(self, level: int, mode: str) -> None:
        self.called.append(("sleep", level, mode))

    async def wake_up(self, tags: list[str] | None) -> None:
        self.called.append(("wake_up", tags))

    async def collective_rpc(self, method: str) -> None:
        self.called.append(("collective_rpc", method))


def _calls(llm: _Llm) -> EngineCalls:
    return EngineCalls(llm, cast(EngineArguments, SimpleNamespace(path="model.json")))


async def test_weights_that_were_released_are_read_again_before_it_is_awake() -> None:
    llm = _Llm()
    calls = _calls(llm)
    control = EngineControl(calls, None, [])
    for _ in range(2):
        await control.carry_out("sleep", {"level": 2, "mode": "wait"})
        assert calls.condition == "the engine is asleep"
        assert await control.carry_out("wake", {}) == {"asleep": False}
        assert calls.condition == ""
    once = [
        ("sleep", 2, "wait"),
        ("wake_up", ["weights"]),
        ("collective_rpc", "reload_weights"),
        ("wake_up", ["kv_cache"]),
    ]
    assert llm.called == once * 2


async def test_weights_that_were_kept_are_not() -> None:
    llm = _Llm()
    control = EngineControl(_calls(llm), None, [])
    await control.carry_out("sleep", {"level": 1, "mode": "wait"})
    assert await control.carry_out("wake", {}) == {"asleep": False}
    assert llm.called == [("sleep", 1, "wait"), ("wake_up", None)]
