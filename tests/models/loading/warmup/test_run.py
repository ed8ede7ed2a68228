"""Running samples on an instance."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from fakes import FakeInstance, make_request, make_response, turns
from penstock.core.errors import ModelLoadError, UnavailableError
from penstock.core.request import InferenceResponse
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.models.loading.warmup import WarmupSample, warm_up


class Answering(FakeInstance):
    """Answers every request as scripted."""

    def __init__(self, way: Callable[[Inference], None]) -> None:
        super().__init__()
        self.way = way

    def execute(self, batch: list[Inference], done: Callable[[], None]) -> None:  # type: ignore[override]
        self.batches.append([inference.request.id for inference in batch])
        for inference in batch:
            self.way(inference)
        done()


def _sample(size: int = 1, count: int = 1) -> WarmupSample:
    return WarmupSample("s", make_request("w"), size, count)


async def _run(
    instance: FakeInstance, sample: WarmupSample, statistics: Statistics | None = None
) -> None:
    await asyncio.wait_for(warm_up(instance, [sample], statistics or Statistics()), 20)


async def _error(instance: FakeInstance, sample: WarmupSample) -> str:
    with pytest.raises(ModelLoadError) as failed:
        await _run(instance, sample)
    return failed.value.message


@pytest.mark.contract("I-19")
async def test_a_sample_runs_as_one_batch_as_often_as_it_says() -> None:
    instance = FakeInstance()
    await _run(instance, _sample(3, 2))
    assert instance.batches == [["w", "w", "w"]] * 2


async def test_each_run_of_a_sample_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "penstock")
    await _run(FakeInstance("m_0_1"), _sample(3, 2))
    assert caplog.messages == [
        f"model 'm' instance m_0_1 is running warmup sample 's' for iteration {turn}"
        for turn in (1, 2)
    ]


@pytest.mark.contract("I-21")
async def test_samples_are_counted_as_requests_are() -> None:
    statistics = Statistics()
    await _run(FakeInstance(), _sample(2), statistics=statistics)
    assert (statistics.success.count, statistics.pending, statistics.in_flight) == (2, 0, 0)


@pytest.mark.contract("I-20")
@pytest.mark.parametrize(
    "way",
    [
        lambda inference: inference.fail(UnavailableError("boom")),
        lambda inference: inference.stream.send(
            InferenceResponse(final=True, error=UnavailableError("boom"))
        ),
    ],
)
async def test_every_failure_of_a_batch_is_reported(way: Callable[[Inference], None]) -> None:
    error = await _error(Answering(way), _sample(2))
    assert error == "failed to run warmup sample 's': boom; boom; "


async def test_all_responses_of_a_decoupled_model_are_waited_for() -> None:
    def stream(inference: Inference) -> None:
        inference.stream.send(make_response(1))
        asyncio.get_running_loop().call_later(0.01, inference.fail, UnavailableError("late"))

    assert "late" in await _error(Answering(stream), _sample())


async def test_giving_up_cancels_what_runs() -> None:
    statistics = Statistics()
    running = asyncio.ensure_future(warm_up(FakeInstance(held=True), [_sample()], statistics))
    await turns()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert statistics.in_flight == 0
