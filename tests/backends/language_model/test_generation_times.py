"""The times of generations, in the histograms of their engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.backend import LANGUAGE_MODEL_METRICS, InferenceRequest
from penstock.core.timeline import Trace
from penstock_backends.language_model import EngineStatistics, GenerationTimes, exemplar_id
from penstock_backends.vllm.statistics import VllmStatistics


class _Clock:
    now = 10.0

    def __call__(self) -> int:
        return int(self.now * 1e9)


def sums(statistics: EngineStatistics) -> dict[str, tuple[int, float]]:
    """Count and sum of each histogram that has observations."""
    return {
        name.removeprefix("penstock_llm_"): (histogram.buckets[-1][1], histogram.total)
        for name, histogram in statistics.histograms.items()
        if histogram.buckets[-1][1]
    }


def test_a_whole_request_is_observed_at_each_step() -> None:
    statistics, clock = EngineStatistics(), _Clock()
    times = GenerationTimes(statistics, 7, clock=clock)
    times.queued()
    clock.now = 10.5
    times.scheduled()
    clock.now = 11.0
    times.scheduled()  # of a second candidate
    times.output(1, finished=False)
    clock.now = 11.25
    times.output(0, finished=False)  # held back by a stop string
    clock.now = 11.5
    times.output(2, finished=True)
    assert sums(statistics) == {
        "queue_seconds": (1, 0.5),
        "time_to_first_token_seconds": (1, 1.0),
        "inter_token_seconds": (1, 0.5),
        "request_seconds": (1, 1.5),
        "request_prompt_tokens": (1, 7),
        "request_generation_tokens": (1, 3),
    }


def test_a_request_without_an_end_has_no_length() -> None:
    """Clients that leave would make requests look shorter than they are."""
    statistics = EngineStatistics()
    times = GenerationTimes(statistics, 7)
    times.scheduled()
    times.output(1, finished=False)
    assert sums(statistics).keys() == {"queue_seconds", "time_to_first_token_seconds"}


def test_a_trace_is_an_exemplar() -> None:
    statistics = EngineStatistics()
    GenerationTimes(statistics, 7, "a" * 32).output(1, finished=False)
    histogram = statistics.histograms["penstock_llm_time_to_first_token_seconds"]
    (exemplar,) = filter(None, histogram.exemplars)
    assert exemplar.trace_id == "a" * 32


@pytest.mark.parametrize("exported", [True, False])
def test_only_traces_that_can_be_found_are_exemplars(exported: bool) -> None:
    trace = Trace(1, propagated=exported)
    request = InferenceRequest("m", timeline=trace.root)
    assert exemplar_id(request) == (trace.text_id if exported else "")
    assert exemplar_id(InferenceRequest("m")) == ""


def test_every_declared_family_is_reported() -> None:
    statistics = EngineStatistics()
    reported = {*statistics.metrics(), *statistics.histograms}
    of_one_engine = {"penstock_llm_engine_steps_total", "penstock_llm_preemptions_total"}
    assert LANGUAGE_MODEL_METRICS.keys() - reported == of_one_engine
    assert reported <= LANGUAGE_MODEL_METRICS.keys()


def _iteration(**fields: Any) -> SimpleNamespace:
    empty: dict[str, Any] = {
        "num_prompt_tokens": 0,
        "num_generation_tokens": 0,
        "num_preempted_reqs": 0,
        "time_to_first_tokens_iter": [],
        "inter_token_latencies_iter": [],
        "finished_requests": [],
    }
    return SimpleNamespace(**(empty | fields))


def _finished(reason: str) -> SimpleNamespace:
    return SimpleNamespace(
        finish_reason=SimpleNamespace(name=reason),
        queued_time=0.5,
        e2e_latency=2.0,
        num_prompt_tokens=7,
        num_generation_tokens=3,
    )


def test_vllm_reports_its_own_times() -> None:
    statistics = VllmStatistics()
    statistics.record(None, _iteration(time_to_first_tokens_iter=[0.25]))
    statistics.record(None, _iteration(inter_token_latencies_iter=[0.5, 0.25]))
    ends = [_finished(reason) for reason in ("STOP", "LENGTH", "ABORT", "ERROR")]
    statistics.record(None, _iteration(finished_requests=ends))
    assert sums(statistics) == {
        "queue_seconds": (2, 1.0),
        "time_to_first_token_seconds": (1, 0.25),
        "inter_token_seconds": (2, 0.75),
        "request_seconds": (2, 4.0),
        "request_prompt_tokens": (2, 14),
        "request_generation_tokens": (2, 6),
    }


def test_what_a_warm_up_took_is_forgotten() -> None:
    statistics = EngineStatistics()
    statistics.observe("queue_seconds", 20.0)
    statistics.forget_observations()
    assert sums(statistics) == {}
