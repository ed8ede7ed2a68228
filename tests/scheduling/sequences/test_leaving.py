"""Clients that leave, and sequences that idle. Times are virtual."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from fakes import in_virtual_time, turns
from penstock.core.config import ModelConfig
from penstock.core.errors import (
    InvalidRequestError,
    RejectedError,
    RequestCancelledError,
    UnavailableError,
)
from scheduling.sequences.scene import (
    BOTH,
    Recorder,
    Scene,
    config,
    direct,
    oldest,
    outcome,
    outcomes,
)

# -- who leaves -----------------------------------------------------------------------------------


@pytest.mark.contract("S-10")
@BOTH
@in_virtual_time
async def test_whoever_leaves_takes_the_rest_of_the_sequence_along(model: ModelConfig) -> None:
    scene = Scene(model, Recorder(seconds=1.0))
    sent = scene.send_all(1, "abcd")
    await turns()
    sent[2].stream.close()
    a, b, _, d = await outcomes(sent)
    assert (a, b) == ("a", "b")
    assert isinstance(d, RequestCancelledError)
    assert scene.instance.ids == [["a"], ["b"]]


@pytest.mark.contract("S-10")
@in_virtual_time
async def test_whoever_leaves_the_queue_of_an_instance_takes_the_rest_along() -> None:
    scene = Scene(oldest(), Recorder(seconds=1.0))
    busy = scene.send_all(1, "a")
    await turns()
    sent = scene.send_all(2, "bc")
    sent[0].stream.close()
    assert isinstance(await outcome(sent[1]), RequestCancelledError)
    assert (await outcomes(busy), scene.instance.ids) == (["a"], [["a"]])


@BOTH
@in_virtual_time
async def test_leaving_while_it_executes_breaks_nothing(model: ModelConfig) -> None:
    """The model has seen it, so the next one fits."""
    scene = Scene(model, Recorder(seconds=1.0))
    first, second = scene.send_all(1, "ab")
    await turns()
    first.stream.close()
    assert await outcome(second) == "b"


@pytest.mark.contract("S-10")
@pytest.mark.parametrize("model", [config(rows=0), oldest(max_candidate_sequences=1)])
@in_virtual_time
async def test_a_sequence_in_the_backlog_goes_with_one_of_its_requests(model: ModelConfig) -> None:
    scene = Scene(model, Recorder(seconds=1.0))
    sent = scene.send_all(1, "a"), scene.send_all(2, "bc"), scene.send_all(3, "d")
    await turns()
    sent[1][0].stream.close()
    assert await outcomes([*sent[0], *sent[2]]) == ["a", "d"]
    assert isinstance(await outcome(sent[1][1]), RequestCancelledError)


@BOTH
async def test_abandoned_requests_fail_with_the_reason(model: ModelConfig) -> None:
    scene = Scene(model, Recorder(seconds=60.0))
    sent = [*scene.send_all(1, "ab"), *scene.send_all(2, "c")]
    scene.batcher.abandon(UnavailableError("the model is gone"))
    errors = await outcomes(sent)
    assert {str(error) for error in errors} == {"the model is gone"}


@BOTH
@in_virtual_time
async def test_a_drained_model_has_no_sequences_whose_client_never_ended_them(
    model: ModelConfig,
) -> None:
    """Nobody waits for the rest of what an unloaded version has begun."""
    scene = Scene(model)
    await outcome(scene.send(1, "a", start=True))
    before = scene.batcher.has_sequences
    await scene.batcher.drain()
    assert (before, scene.batcher.has_sequences) == (True, False)
    await asyncio.wait_for(scene.batcher.finished(), 1)


@pytest.mark.contract("ME-07")
@BOTH
@in_virtual_time
async def test_what_waits_anywhere_is_pending(model: ModelConfig) -> None:
    scene = Scene(model, Recorder(seconds=1.0))
    sent = [i for n in range(1, 8) for i in scene.send_all(n, "ab")]
    await asyncio.sleep(0.5)
    executing = len(scene.instance.ids[0])
    assert scene.statistics.pending == len(sent) - executing
    await outcomes(sent)
    assert (scene.statistics.pending, scene.statistics.success.count) == (0, len(sent))


# -- time -----------------------------------------------------------------------------------------


@pytest.mark.contract("S-09")
@BOTH
@in_virtual_time
async def test_an_idle_sequence_has_to_be_started_again(model: ModelConfig) -> None:
    scene = Scene(model)
    await outcome(scene.send(1, "a", start=True))
    await asyncio.sleep(0.9)
    await outcome(scene.send(1, "b"))
    await asyncio.sleep(1.1)
    with pytest.raises(InvalidRequestError, match="must specify the START flag"):
        scene.send(1, "c")


@pytest.mark.contract("S-09", "S-07")
@in_virtual_time
async def test_the_slot_of_an_idle_sequence_goes_to_the_backlog() -> None:
    scene = Scene(config(rows=0))
    await outcome(scene.send(1, "a", start=True))
    waiting = scene.send(2, "b", start=True)
    assert await outcome(waiting) == "b"
    assert scene.instance.began == [0.0, pytest.approx(1.0)]


@in_virtual_time
async def test_a_request_that_takes_long_does_not_make_its_sequence_idle() -> None:
    scene = Scene(direct(), Recorder(seconds=5.0))
    await outcome(scene.send(1, "a", start=True))
    assert await outcome(scene.send(1, "b")) == "b"


@pytest.mark.contract("S-08")
@in_virtual_time
async def test_a_sequence_gives_up_waiting_for_a_slot_after_its_timeout() -> None:
    scene = Scene(config(rows=0), Recorder(seconds=3.0))
    first = scene.send(1, "a", start=True)
    waiting = [scene.send(2, "b", start=True, timeout=2_000_000), scene.send(2, "c")]
    errors = await outcomes(waiting)
    assert asyncio.get_running_loop().time() == pytest.approx(2.0)
    assert all(isinstance(error, RejectedError) for error in errors)
    assert str(errors[0]) == "timeout of the corresponding sequence has been expired"
    assert await outcome(first) == "a"


@BOTH
@in_virtual_time
async def test_nothing_of_a_drained_batcher_waits_for_a_time(model: ModelConfig) -> None:
    """Its timers would keep it, with all that it refers to, until the idle timeout."""
    scene = Scene(model)
    await outcome(scene.send(1, "a", start=True))
    await scene.batcher.drain()
    kept = weakref.ref(scene.batcher)
    del scene
    await turns()
    gc.collect()
    assert kept() is None
