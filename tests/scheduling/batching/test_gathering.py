"""Batch gathering: the delay for clients that were just answered."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import FakeInstance, in_virtual_time, marks, model_config, occupy
from penstock.core.config import DynamicBatching, Parameter
from penstock.core.errors import ConfigError
from penstock.scheduling.batching.batch_queue import BatchPolicy
from penstock.scheduling.batching.dynamic_batcher import BatcherSettings, DynamicBatcher
from penstock.scheduling.batching.gathering import GATHER, Gathering, gather_share
from scheduling.batching.batcher.scheduled import scheduled

SETTINGS = BatcherSettings(BatchPolicy(8), gather=0.5)


def test_nobody_waits_before_anything_was_executed() -> None:
    assert Gathering(0.5).due(0.0, 1) == -inf


def test_a_batch_starts_when_all_clients_are_back() -> None:
    gathering = Gathering(0.5)
    gathering.executed(begun=10.0, now=14.0, requests=3, waiting=2)
    assert gathering.due(14.0, 2) == gathering.due(15.9, 2) == 16.0
    assert gathering.due(15.0, 5) == -inf


def test_the_delay_begins_anew_with_each_client_that_comes_back() -> None:
    gathering = Gathering(0.5)
    gathering.executed(begun=10.0, now=14.0, requests=9, waiting=0)
    assert [gathering.due(14.0 + back, back) for back in range(1, 8)] == [
        17,
        18,
        19,
        20,
        21,
        22,
        22,
    ]
    assert gathering.due(22.0, 8) == -inf


def test_nobody_waits_for_clients_that_stay_away() -> None:
    gathering = Gathering(0.5)
    gathering.executed(begun=10.0, now=14.0, requests=9, waiting=0)
    assert gathering.due(15.0, 3) == 17.0
    assert gathering.due(17.0, 3) == -inf


@given(
    st.floats(0, 1),
    st.floats(0, 1e6),
    st.floats(0, 1e3),
    st.integers(1, 64),
    st.integers(0, 64),
    st.floats(0, 2e3),
)
def test_nobody_waits_longer_than_four_shares_of_the_execution(
    share: float, begun: float, seconds: float, requests: int, waiting: int, later: float
) -> None:
    gathering, ended = Gathering(share), begun + seconds
    gathering.executed(begun, ended, requests, waiting)
    due = gathering.due(ended + later, waiting)
    assert due == -inf or ended + later < due <= ended + 4 * share * (ended - begun)


async def call_for_ever(
    batcher: DynamicBatcher, id: str, pause: float, until: float, writing: float = 0.0
) -> None:
    """A client that comes back a moment after each answer, which takes a while to be written."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        (inference,) = scheduled(batcher, id)
        await marks(inference.stream)
        occupy(writing)
        await asyncio.sleep(pause)


@in_virtual_time
async def test_clients_that_come_back_stay_together() -> None:
    instance = FakeInstance(seconds=1.0)
    batcher = DynamicBatcher(SETTINGS, [instance])
    calls = [call_for_ever(batcher, id, 0.1, 30) for id in "abcdef"]
    asyncio.get_running_loop().call_later(0.5, scheduled, batcher, "g")
    await asyncio.gather(*calls)
    assert [len(batch) for batch in instance.batches[2:-1]] == [6] * (len(instance.batches) - 3)


def test_the_delay_begins_when_clients_have_their_answers() -> None:
    gathering = Gathering(0.5)
    gathering.executed(begun=10.0, now=14.0, requests=3, waiting=0)
    gathering.answered(15.0)
    assert gathering.due(16.5, 0) == 17.0


@in_virtual_time
async def test_clients_whose_answers_take_long_to_write_stay_together() -> None:
    """Each of the six occupies the event loop for a tenth of the time of a batch."""
    instance = FakeInstance(seconds=1.0)
    batcher = DynamicBatcher(replace(SETTINGS, gather=0.3), [instance])
    loop = asyncio.get_running_loop()
    calls = [call_for_ever(batcher, id, 0.1, 30, writing=0.1) for id in "abcdef"]
    loop.call_later(0.5, scheduled, batcher, "g")
    await asyncio.gather(*calls)
    assert [len(batch) for batch in instance.batches[2:-1]] == [6] * (len(instance.batches) - 3)


@in_virtual_time
async def test_a_lone_client_is_not_delayed() -> None:
    instance = FakeInstance(seconds=1.0)
    await call_for_ever(DynamicBatcher(SETTINGS, [instance]), "a", 0.1, 10)
    assert instance.began[:4] == [pytest.approx(1.1 * n) for n in range(4)]


@in_virtual_time
async def test_a_batch_starts_after_the_share_if_clients_do_not_come_back() -> None:
    instance = FakeInstance(seconds=1.0)
    batcher = DynamicBatcher(SETTINGS, [instance])
    scheduled(batcher, "abc")
    await asyncio.sleep(0.2)
    (left,) = scheduled(batcher, "d")
    assert await marks(left.stream) == ["d"]
    assert instance.began == [0.0, pytest.approx(1.5)]


@in_virtual_time
async def test_a_full_batch_is_not_delayed() -> None:
    instance = FakeInstance(seconds=1.0)
    batcher = DynamicBatcher(SETTINGS, [instance])
    scheduled(batcher, "a")
    await asyncio.sleep(0.2)
    scheduled(batcher, "bcdefghi")
    await asyncio.sleep(5)
    assert instance.began == [0.0, pytest.approx(1.0)]


@pytest.mark.parametrize("text", ["-1", "101", "5.5", "", "five"])
def test_senseless_shares_are_refused(text: str) -> None:
    config = model_config(dynamic_batching=DynamicBatching(), parameters={GATHER: Parameter(text)})
    with pytest.raises(ConfigError, match=r"'penstock\.gather_percent' must be a number"):
        gather_share(config)


def test_share_without_a_batcher_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs dynamic_batching"):
        gather_share(model_config(parameters={GATHER: Parameter("5")}))


def test_share_is_read_from_the_configuration() -> None:
    config = model_config(dynamic_batching=DynamicBatching(), parameters={GATHER: Parameter("5")})
    assert BatcherSettings.from_config(config).gather == 0.05
