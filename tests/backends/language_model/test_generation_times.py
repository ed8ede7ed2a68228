"""The times of generations, in the histograms of their engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.backend import LANGUAGE_MODEL_METRICS, InferenceRequest
from penstock.core.request import RequestScope, Sender
from penstock.core.timeline import Trace
from penstock.metrics.series_name import split_series_name
from penstock_backends.language_model import (
    ENGINE_TOKENS,
    EngineStatistics,
    GenerationRecord,
    GenerationTimes,
    exemplar_id,
    tenant_label,
)
from penstock_backends.vllm.statistics import VllmStatistics

_WAITS = "queue", "time_to_first_token", "request"


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
        "prompt_tokens": (1, 7),
        "generated_tokens": (1, 3),
        "time_per_output_token_seconds": (1, 0.25),
    }


def test_a_wait_before_the_engine_is_in_the_times_but_no_mark() -> None:
    statistics, clock, timeline = EngineStatistics(), _Clock(), Trace(1).root
    request = InferenceRequest("m", scope=RequestScope(waited=int(2e9)))
    record = GenerationRecord(timeline, request, "test")
    times = GenerationTimes(statistics, 7, clock=clock, record=record, waited=request.scope.waited)
    times.queued()
    times.scheduled()
    clock.now = 10.5
    times.output(1, finished=True)
    record.ended([], times.latest)
    assert [sums(statistics)[f"{name}_seconds"][1] for name in _WAITS] == [2.0, 2.5, 2.5]
    facts = "queue_time", "time_to_first_token", "total_time"
    assert [timeline.facts[f"penstock.llm.{name}_ms"] for name in facts] == [2000, 2500, 2500]
    assert timeline.marks[0] == ("ENGINE_QUEUED", int(10e9))


def test_observations_of_tenants_are_in_series_of_their_own() -> None:
    statistics = EngineStatistics()
    assert statistics.distributions() == statistics.histograms
    for tenant, tokens in (("red", 1), ("blue", 2), ("red", 4)):
        GenerationTimes(statistics, 7, tenant=tenant).output(tokens, finished=True)
    series = statistics.distributions()
    assert {split_series_name(name) for name in series} == {
        (name, labels)
        for name in statistics.histograms
        for labels in ((), (("tenant", "red"),), (("tenant", "blue"),))
    }
    assert series['penstock_llm_generated_tokens{tenant="red"}'].total == 5
    assert series['penstock_llm_generated_tokens{tenant="blue"}'].total == 2
    assert sums(statistics) == {}


def test_tenant_is_that_of_the_requests_sender() -> None:
    assert (
        tenant_label(InferenceRequest("m", scope=RequestScope(sender=Sender("a b", label="a_b"))))
        == "a_b"
    )
    assert tenant_label(InferenceRequest("m")) == ""


def test_a_request_without_an_end_has_no_length() -> None:
    """Clients that leave would make requests look shorter than they are."""
    statistics = EngineStatistics()
    times = GenerationTimes(statistics, 7)
    times.scheduled()
    times.output(1, finished=False)
    assert sums(statistics).keys() == {"queue_seconds", "time_to_first_token_seconds"}


def test_candidates_share_the_time_of_a_token() -> None:
    """Two texts of three tokens each: two tokens after the first, of each."""
    statistics, clock = EngineStatistics(), _Clock()
    times = GenerationTimes(statistics, 7, clock=clock, candidates=2)
    times.queued()
    for second in (0, 1, 2):
        clock.now = 10.0 + second
        times.output(2, finished=second == 2)
    assert sums(statistics)["time_per_output_token_seconds"] == (1, 1.0)


def test_one_token_has_no_time_of_those_after_it() -> None:
    statistics = EngineStatistics()
    GenerationTimes(statistics, 7).output(1, finished=True)
    assert "time_per_output_token_seconds" not in sums(statistics)


def test_what_is_made_after_the_client_left_is_wasted() -> None:
    statistics, clock, timeline = EngineStatistics(), _Clock(), Trace(1).root
    record = GenerationRecord(timeline, InferenceRequest("m"), "test")
    times = GenerationTimes(statistics, 7, clock=clock, record=record)
    times.queued()
    for second in range(4):
        clock.now = 11.0 + second
        times.output(2, finished=False)
    times.left(int(12.5e9))
    assert statistics.metrics()["penstock_llm_wasted_tokens_total"] == 4
    assert timeline.facts["penstock.llm.wasted_tokens"] == 4


def test_refusals_are_counted_by_their_reasons() -> None:
    statistics = EngineStatistics()
    statistics.reject(ENGINE_TOKENS)
    statistics.reject(ENGINE_TOKENS)
    metrics = statistics.metrics()
    assert metrics['penstock_llm_rejected_total{reason="engine_tokens"}'] == 2
    assert metrics['penstock_llm_rejected_total{reason="engine_requests"}'] == 0


def test_a_trace_is_an_exemplar() -> None:
    statistics = EngineStatistics()
    GenerationTimes(statistics, 7, "a" * 32).output(1, finished=False)
    histogram = statistics.histograms["penstock_llm_time_to_first_token_seconds"]
    (exemplar,) = filter(None, histogram.exemplars)
    assert exemplar.trace_id == "a" * 32


@pytest.mark.parametrize("exported", [True, False])
def test_only_traces_that_can_be_found_are_exemplars(exported: bool) -> None:
    trace = Trace(1, propagated=exported)
    request = InferenceRequest("m", scope=RequestScope(timeline=trace.root))
    assert exemplar_id(request) == (trace.text_id if exported else "")
    assert exemplar_id(InferenceRequest("m")) == ""


def test_every_declared_family_is_reported() -> None:
    statistics = EngineStatistics()
    named = {split_series_name(name)[0] for name in statistics.metrics()}
    reported = {*named, *statistics.histograms}
    of_some = ("engine_steps", "preemptions", "cached_tokens", "spec_draft_tokens")
    totals = {f"penstock_llm_{name}_total" for name in (*of_some, "spec_accepted_tokens")}
    infos = {"penstock_llm_cache_config_info", "penstock_llm_lora_requests_info"}
    of_server = ("penstock_llm_tenant_", "penstock_llm_queued_", "penstock_llm_max_running_")
    missing = {n for n in LANGUAGE_MODEL_METRICS.keys() - reported if not n.startswith(of_server)}
    assert missing == totals | infos
    assert reported <= LANGUAGE_MODEL_METRICS.keys()


def _iteration(**fields: Any) -> SimpleNamespace:
    empty: dict[str, Any] = {
        "num_prompt_tokens": 0,
        "prompt_token_stats": SimpleNamespace(cached_tokens=0),
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
        inference_time=1.5,
        mean_time_per_output_token=0.375,
        num_prompt_tokens=7,
        num_generation_tokens=3,
        request_id="1",
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
        "prompt_tokens": (2, 14),
        "generated_tokens": (2, 6),
        "time_per_output_token_seconds": (2, 0.75),
    }


def test_what_a_warm_up_took_is_forgotten() -> None:
    statistics = EngineStatistics()
    statistics.observe("queue_seconds", 20.0)
    statistics.forget_own_request()
    assert sums(statistics) == {}
