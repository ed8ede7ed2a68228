"""A loaded ensemble depends on the models of its steps."""

from __future__ import annotations

import asyncio

import pytest

from fakes import FakeInstance, make_model, make_request, model_config, turns
from penstock.core.errors import UnavailableError
from penstock.inflight.statistics import Statistics
from penstock.models.serving.loaded_ensemble import LoadedEnsemble
from penstock.models.serving.loaded_model import LoadedModel, ModelParts
from penstock.scheduling.direct import DirectScheduler


def _ensemble(*models: LoadedModel) -> LoadedEnsemble:
    return LoadedEnsemble(
        ModelParts(model_config(), 1, DirectScheduler([FakeInstance()]), Statistics()), models
    )


async def test_an_ensemble_is_ready_when_all_its_models_are() -> None:
    healthy, sick = FakeInstance("a"), FakeInstance("b")
    ensemble = _ensemble(make_model(healthy), make_model(sick))
    assert await ensemble.ready()
    sick.health = False
    assert not await ensemble.ready()


async def test_an_ensemble_is_lost_with_one_of_its_models() -> None:
    instance = FakeInstance("b_0")
    ensemble = _ensemble(make_model(FakeInstance("a_0")), make_model(instance))
    assert (ensemble.loss, ensemble.alive) == ("", True)
    instance.give_up()
    assert ensemble.loss.endswith("instance 'b_0': it is away")
    assert not ensemble.alive


async def test_a_model_stops_after_the_ensemble_that_uses_it() -> None:
    instance = FakeInstance()
    model = make_model(instance)
    ensemble = _ensemble(model, model)
    stopping = asyncio.ensure_future(model.stop())
    await turns()
    assert (stopping.done(), instance.stopped) == (False, 0)
    await ensemble.stop()
    await asyncio.wait_for(stopping, 20)
    assert instance.stopped == 1


async def test_an_ensemble_that_has_stopped_refuses_requests_and_is_not_ready() -> None:
    ensemble = _ensemble(make_model(FakeInstance()))
    await ensemble.stop()
    with pytest.raises(UnavailableError, match=r"has stopped accepting new inference requests$"):
        ensemble.infer(make_request("a"))
    assert not await ensemble.ready()
