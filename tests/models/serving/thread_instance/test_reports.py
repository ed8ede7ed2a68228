"""Health and metrics of a backend, as its instance reports them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fakes import FakeBackend, Script, Tokens, make_inference, marks, turns
from models.serving.thread_instance.executions import started, thread_instance
from penstock.core.backend import Traits, WithMetrics, WithReadiness
from penstock.models.serving.thread_instance import ThreadInstance


class Talking(WithMetrics, WithReadiness, FakeBackend):
    """Says of itself what `said` says."""

    said: Any = None

    async def healthy(self) -> bool:
        return bool(self.said())

    def metrics(self) -> Any:
        return {"load": self.said()}

    def histograms(self) -> Any:
        return {"load": self.said()}


async def _talking(said: Callable[[], Any]) -> ThreadInstance:
    attributes = {"script": Script(), "said": staticmethod(said)}
    instance = thread_instance(type("Scripted", (Talking,), attributes))
    await instance.start()
    return instance


@pytest.mark.parametrize("health", [True, False])
async def test_an_instance_is_as_healthy_as_its_backend(health: bool) -> None:
    instance = await _talking(lambda: health)
    assert await instance.healthy() is health
    assert instance.metrics() == {"load": health}
    await instance.stop()
    assert not await instance.healthy()


async def test_a_backend_that_cannot_say_how_it_is_is_not_healthy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    instance = await _talking(lambda: 1 / 0)
    assert not await instance.healthy()
    assert caplog.messages == ["the health check of instance 'm_0' failed"]
    await instance.stop()


async def test_a_backend_that_cannot_say_its_histograms_has_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    instance = await _talking(lambda: 1 / 0)
    assert instance.histograms() == {}
    assert caplog.messages == ["reading the histograms of instance 'm_0' failed"]
    await instance.stop()


async def test_a_backend_that_cannot_say_its_numbers_has_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    instance = await _talking(lambda: 1 / 0)
    assert instance.metrics() == {}
    assert caplog.messages == ["reading the metrics of instance 'm_0' failed"]
    await instance.stop()


def test_a_backend_says_whether_it_is_serial() -> None:
    async def serial(value: bool) -> bool:
        return thread_instance(
            type("Scripted", (FakeBackend,), {"traits": Traits(serial=value)})
        ).serial

    assert [asyncio.run(serial(value)) for value in (True, False)] == [True, False]


async def test_what_it_was_given_is_answered_when_execution_and_streams_have_ended() -> None:
    end, script = asyncio.Event(), Script()
    script.gate.clear()
    script.answer = lambda _: Tokens(2, end=end).generate()
    async with started(script) as instance:
        inference = make_inference()
        instance.execute([inference], lambda: None)
        waiting = asyncio.ensure_future(instance.answered())
        script.gate.set()
        await turns()
        assert not waiting.done()
        end.set()
        assert await marks(inference.stream) == [0, 1]
        await asyncio.wait_for(waiting, 20)


async def test_an_instance_without_requests_has_answered_them() -> None:
    async with started(Script()) as instance:
        await asyncio.wait_for(instance.answered(), 20)
