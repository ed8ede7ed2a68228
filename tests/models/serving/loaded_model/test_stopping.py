"""A loaded version stops without losing anybody."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fakes import FakeInstance, make_model, make_request, marks, model_config, turns
from penstock.core.errors import UnavailableError
from penstock.inflight.statistics import Statistics
from penstock.models.serving.loaded_model import LoadedModel, ModelParts
from penstock.models.serving.server_application import ServerApplication
from penstock.models.sizing.budget import MemoryBudget
from penstock.models.sizing.estimate import ModelFacts
from penstock.scheduling.direct import DirectScheduler


async def test_stopping_finishes_what_is_in_flight_and_then_releases_the_instances() -> None:
    instance = FakeInstance(held=True)
    model = make_model(instance)
    streams = [model.infer(make_request(id)) for id in "abc"]
    stopping = asyncio.ensure_future(model.stop())
    await turns()
    assert (stopping.done(), instance.stopped) == (False, 0)
    instance.release()
    assert [await marks(stream) for stream in streams] == [["a"], ["b"], ["c"]]
    await asyncio.wait_for(stopping, 20)
    assert instance.stopped == 1


async def test_a_model_that_stops_refuses_at_once_and_is_not_ready() -> None:
    instance = FakeInstance(held=True)
    model = make_model(instance)
    model.infer(make_request("a"))
    stopping = asyncio.ensure_future(model.stop())
    await turns()
    with pytest.raises(UnavailableError, match=r"has stopped accepting new inference requests$"):
        model.infer(make_request("b"))
    assert not await model.ready()
    instance.release()
    await stopping


async def test_stopping_waits_for_requests_whose_instance_is_away() -> None:
    instance = FakeInstance(held=True)
    model = make_model(instance)
    _, waiting = model.infer(make_request("a")), model.infer(make_request("b"))
    await turns()
    instance.go_away()
    instance.release()
    stopping = asyncio.ensure_future(model.stop())
    await turns(20)
    assert (stopping.done(), instance.stopped) == (False, 0)
    instance.come_back()
    assert await marks(waiting) == ["b"]
    await asyncio.wait_for(stopping, 20)


async def test_stopping_waits_for_an_execution_whose_reader_left() -> None:
    instance = FakeInstance(held=True)
    model = make_model(instance)
    stream = model.infer(make_request())
    await turns()
    stream.close()
    stopping = asyncio.ensure_future(model.stop())
    await turns()
    assert (stopping.done(), instance.stopped) == (False, 0)
    instance.release()
    await asyncio.wait_for(stopping, 20)


async def test_aborting_fails_what_waits_for_an_instance() -> None:
    instance = FakeInstance(held=True)
    model = make_model(instance)
    _, waiting = model.infer(make_request("a")), model.infer(make_request("b"))
    await model.abort()
    with pytest.raises(UnavailableError, match=r"^model 'm' is being unloaded$"):
        await marks(waiting)
    instance.release()
    await turns()


async def test_an_idle_model_stops_at_once() -> None:
    instance = FakeInstance()
    await asyncio.wait_for(make_model(instance).stop(), 20)
    assert instance.stopped == 1


@pytest.mark.parametrize("end", [LoadedModel.stop, LoadedModel.abort])
async def test_an_instance_that_fails_to_stop_does_not_keep_the_others(end: Any) -> None:
    broken, sound = FakeInstance("m_0"), FakeInstance("m_1")
    broken.stop_error = OSError("device lost")
    with pytest.raises(OSError, match="device lost"):
        await end(make_model(broken, sound))
    assert sound.stopped == 1


async def test_aborting_does_not_wait_for_what_is_in_flight() -> None:
    instance = FakeInstance(held=True)
    model = make_model(instance)
    model.infer(make_request())
    await turns()
    await asyncio.wait_for(model.abort(), 20)
    assert instance.stopped == 1
    instance.release()
    await turns()


async def test_an_application_that_cannot_be_closed_keeps_no_instance_and_no_memory() -> None:
    class Stubborn(ServerApplication):
        async def close(self) -> None:
            raise RuntimeError("stubborn")

    async def without() -> None:
        return None

    budget, instance = MemoryBudget(1 << 20), FakeInstance()
    claim = budget.claim(ModelFacts(replace(model_config(), backend="fil"), weights={"INT8": 10}))
    parts = ModelParts(
        model_config(),
        1,
        DirectScheduler([instance]),
        Statistics(),
        application=Stubborn("m", without),
        claim=claim,
    )
    assert budget.used
    with pytest.raises(RuntimeError, match="stubborn"):
        await LoadedModel(parts, [instance]).stop()
    assert (instance.stopped, budget.used) == (1, 0)
