"""Sequences whose instances go down, come back, or are added and taken away."""

from __future__ import annotations

import asyncio

import pytest

from fakes import in_virtual_time, turns
from penstock.core.config import ModelConfig
from penstock.core.errors import InvalidRequestError, UnavailableError
from scheduling.sequences.scene import BOTH, Recorder, Scene, config, outcome, outcomes

# -- instances that go down -----------------------------------------------------------------------


@BOTH
@in_virtual_time
async def test_sequences_are_lost_with_their_instance_and_say_so(model: ModelConfig) -> None:
    scene = Scene(model, Recorder("x", seconds=1.0), Recorder("y", seconds=1.0))
    lost = [scene.send(1, "a", start=True), scene.send(1, "b")]
    kept = scene.send_all(2, "cd")
    await turns()
    scene.instances[0].die()
    assert [str(error) for error in await outcomes(lost)] == [
        "killed",
        "sequence 1 of model 'm' was lost when instance 'x' went down; it has to be started again",
    ]
    with pytest.raises(UnavailableError, match="sequence 1 of model 'm' was lost"):
        scene.send(1, "e")
    assert await outcomes([*kept, *scene.send_all(1, "fg")]) == [*"cdfg"]


@BOTH
@in_virtual_time
async def test_an_instance_that_comes_back_knows_none_of_its_sequences(model: ModelConfig) -> None:
    scene = Scene(model)
    await outcome(scene.send(1, "a", start=True))
    scene.instance.die()
    scene.instance.come_back()
    with pytest.raises(UnavailableError, match="was lost when instance 'm_0' went down"):
        scene.send(1, "b")
    assert await outcomes(scene.send_all(1, "cd")) == ["c", "d"]


@BOTH
@in_virtual_time
async def test_new_sequences_wait_for_an_instance_that_comes_back(model: ModelConfig) -> None:
    scene = Scene(model)
    scene.instance.die()
    waiting = scene.send(1, "a", start=True)
    await turns()
    assert scene.instance.ids == []
    scene.instance.come_back()
    assert await outcome(waiting) == "a"


@BOTH
@in_virtual_time
async def test_an_instance_without_resources_has_not_forgotten_its_sequences(
    model: ModelConfig,
) -> None:
    """It is not available while others hold what it needs, and says so when they are done."""
    scene = Scene(model)
    await outcome(scene.send(1, "a", start=True))
    scene.instance.available = False
    waiting = scene.send(1, "b")
    await turns()
    assert scene.instance.ids == [["a"]]
    scene.instance.available = True
    assert scene.instance.on_available is not None
    scene.instance.on_available()
    assert await outcome(waiting) == "b"


@in_virtual_time
async def test_what_was_lost_is_forgotten_in_time() -> None:
    scene = Scene(config(max_sequence_idle_microseconds=2_000_000))
    await outcome(scene.send(1, "a", start=True))
    scene.instance.die()
    scene.instance.come_back()
    scene.send(2, "b", start=True)
    await asyncio.sleep(10)
    with pytest.raises(InvalidRequestError, match="must specify the START flag"):
        scene.send(1, "c")


# -- instances that come and go -------------------------------------------------------------------


@pytest.mark.contract("S-23")
@BOTH
async def test_an_instance_that_goes_keeps_its_sequences_until_they_end(model: ModelConfig) -> None:
    scene = Scene(model, Recorder("m_0"), Recorder("m_1"))
    await outcomes([scene.send(n, f"{n}a", start=True) for n in (1, 2)])
    scene.resize(1)
    vacated = asyncio.ensure_future(scene.batcher.vacated(scene.gone[0]))
    await outcomes([scene.send(3, "3a", start=True), scene.send(1, "1b")])
    assert not vacated.done()
    assert await outcome(scene.send(1, "1c", end=True)) == "1c"
    await asyncio.wait_for(vacated, 20)
    assert [
        [row.sequence for batch in i.batches for row in batch if row.ready] for i in scene.instances
    ] == [
        [1, 1, 1],
        [2, 3],
    ]


@BOTH
@in_virtual_time
async def test_an_idle_sequence_keeps_no_instance(model: ModelConfig) -> None:
    scene = Scene(model, Recorder("m_0"), Recorder("m_1"))
    await outcome(scene.send(1, start=True))
    scene.resize(1)
    async with asyncio.timeout(1.2):
        await scene.batcher.vacated(scene.gone[0])


@BOTH
async def test_an_instance_that_dies_has_no_sequences_to_end(model: ModelConfig) -> None:
    scene = Scene(model, Recorder("m_0"), Recorder("m_1"))
    await outcome(scene.send(1, start=True))
    scene.resize(1)
    scene.instance.die()
    scene.instance.come_back()
    await asyncio.wait_for(scene.batcher.vacated(scene.gone[0]), 20)
    with pytest.raises(UnavailableError, match="was lost when instance 'm_0' went down"):
        scene.send(1)
    assert await outcomes(scene.send_all(1, "ab")) == ["a", "b"]
