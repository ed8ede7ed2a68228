"""What is shown, from two readings of each endpoint."""

from __future__ import annotations

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.reading.counters import Durations, ModelCounters, ModelKey
from penstock_client.reading.kserve import ServerAnswers
from penstock_client.reading.metrics_page import MetricsPage
from penstock_client.reading.views import ModelEntry
from penstock_client.top.model_view import ModelView
from penstock_client.top.view import SORTS, View, make_view, sort_models
from top.readings_of import NO_ANSWERS, NO_PAGE, answer_readings, page_readings


def _view() -> View:
    return make_view(page_readings(), answer_readings())


def _model(view: View, name: str) -> ModelView:
    return next(model for model in view.models if model.key.name == name)


def test_rates_and_averages_are_of_the_interval() -> None:
    bert = _model(_view(), "bert")
    assert (bert.requests, bert.inferences, bert.batch) == (1000, 4000, 16)
    assert (bert.pending, bert.in_flight, bert.cache) == (12, 20, 0.1)
    assert bert.latency == pytest.approx(0.0052)
    assert bert.queue == pytest.approx(0.0021)
    assert bert.compute == pytest.approx(2.9 / 900)  # hits of the cache were not computed


def test_models_that_are_not_asked_for_are_left_out_of_the_totals_too() -> None:
    view = make_view(page_readings(), answer_readings(), ["bert"])
    assert [model.key.name for model in view.models] == ["bert"]
    assert view.totals.requests == 1000
    assert {key.model for key in view.processes} <= {"bert"}
    assert view.not_loaded == _view().not_loaded


def test_cancelled_requests_are_no_errors() -> None:
    assert _model(_view(), "bert").errors == 3


def test_tokens_and_memory_are_shown_where_there_are_any() -> None:
    models = {model.key.name: (model.tokens, model.memory) for model in _view().models}
    assert models == {"bert": (None, None), "llama": (345, 6 << 30), "ranker": (None, None)}


def test_a_model_that_failed_to_load_is_shown_with_its_reason() -> None:
    ranker = _model(_view(), "ranker")
    assert ranker.state == "UNAVAILABLE"
    assert "config.pbtxt:4:48" in ranker.reason
    assert _view().not_loaded == 1


def test_details_have_phases_batches_failures_and_the_engine() -> None:
    shown = _model(_view(), "bert").details
    averages = {phase.name: phase.now for phase in shown.phases}
    assert averages == pytest.approx(
        {
            "queue": 0.0021,
            "compute_input": 0.1 / 900,
            "compute_infer": 2.7 / 900,
            "compute_output": 0.1 / 900,
        }
    )
    assert [(b.rows, b.executions, b.rate) for b in shown.batches] == [
        (4, 600, 50),
        (16, 2400, 200),
    ]
    assert [(one.name, one.count, one.rate) for one in shown.failures] == [
        ("BACKEND", 36, 3),
        ("CANCELED", 84, 7),
    ]
    (waits,) = shown.distributions
    assert waits.quantiles[0.5] == pytest.approx(0.002)
    engine = {one.name: one.rate for one in _model(_view(), "llama").details.engine}
    assert engine["penstock_llm_generation_tokens_total"] == 345
    assert engine["penstock_llm_running_requests"] is None


def test_the_first_reading_has_counts_and_no_rates() -> None:
    page = page_readings()
    assert page.now is not None
    first = NO_PAGE.succeeded(page.now.value, 0.0)
    bert = _model(make_view(first, NO_ANSWERS), "bert")
    assert (bert.requests, bert.latency, bert.errors, bert.pending) == (None, None, None, 12)


def test_quantiles_of_summaries_are_shown_where_they_are_known() -> None:
    quantiles = {"nv_a": {0.5: 1.0, 0.9: nan}, "nv_b": {0.5: nan}}
    counters = ModelCounters(quantiles=quantiles)
    page = NO_PAGE.succeeded(MetricsPage({ModelKey("m", "1"): counters}), 0.0)
    (model,) = make_view(page, NO_ANSWERS).models
    assert [(one.name, one.quantiles) for one in model.details.distributions] == [
        ("nv_a", {0.5: 1.0})
    ]


def test_totals_are_sums() -> None:
    totals = _view().totals
    assert (totals.requests, totals.tokens, totals.errors) == (1002, 345, 3)
    assert (totals.in_flight, totals.pending) == (23, 12)


def test_a_server_without_metrics_is_shown_from_its_statistics() -> None:
    key = ModelKey("m", "1")
    answers = NO_ANSWERS
    for count in (10, 14):
        counters = ModelCounters(success=count, durations=Durations(request=count * 0.5))
        told = ServerAnswers(True, counters={key: counters})
        answers = answers.succeeded(told, float(count))
    view = make_view(NO_PAGE.failed("connection refused", 1.0), answers)
    (model,) = view.models
    assert (model.requests, model.latency) == (1, 0.5)
    assert (view.ready, view.stale, view.problems) == (
        True,
        False,
        {"metrics": "connection refused"},
    )


def test_statistics_tell_durations_that_the_page_leaves_out() -> None:
    """`counter_latencies=false` (ME-18)."""
    key = ModelKey("m", "1")
    page, answers = NO_PAGE, NO_ANSWERS
    for count in (10, 14):
        page = page.succeeded(MetricsPage({key: ModelCounters(success=count)}), float(count))
        counters = ModelCounters(success=count, durations=Durations(request=count * 0.5))
        told = ServerAnswers(True, counters={key: counters})
        answers = answers.succeeded(told, float(count))
    (model,) = make_view(page, answers).models
    assert (model.requests, model.latency) == (1, 0.5)


def test_a_model_that_has_just_been_loaded_has_rates() -> None:
    key = ModelKey("new", "1")
    page = NO_PAGE.succeeded(MetricsPage(), 0.0)
    page = page.succeeded(MetricsPage({key: ModelCounters(success=6)}), 2.0)
    (model,) = make_view(page, NO_ANSWERS).models
    assert model.requests == 3


def test_figures_of_a_server_that_is_gone_are_old() -> None:
    page = page_readings().failed("refused", 103.0).failed("refused", 104.0)
    answers = answer_readings().failed("refused", 103.5)
    view = make_view(page, answers)
    assert (view.begun, view.stale, view.ready, view.failing_since) == (True, True, None, 103.0)
    assert view.problems == {"metrics": "refused", "http": "refused"}
    assert len(view.models) == 3
    assert {model.requests for model in view.models} == {None}


def test_rates_return_two_readings_after_the_server() -> None:
    page = page_readings()
    assert page.now is not None
    value = page.now.value
    back = page.failed("refused", 103.0).succeeded(value, 104.0)
    assert _model(make_view(back, NO_ANSWERS), "bert").requests is None
    assert _model(make_view(back.succeeded(value, 105.0), NO_ANSWERS), "bert").requests == 0


def test_nothing_is_shown_before_an_endpoint_answers() -> None:
    view = make_view(NO_PAGE, NO_ANSWERS)
    assert (view.begun, view.ready, view.models, view.failing_since) == (False, None, [], None)


def test_models_are_sorted_by_what_is_asked() -> None:
    view = _view()
    orders = {sort: [model.key.name for model in sort_models(view.models, sort)] for sort in SORTS}
    assert orders["rate"] == orders["queue"] == orders["errors"] == ["bert", "llama", "ranker"]
    assert orders["latency"] == ["llama", "bert", "ranker"]
    assert orders["name"] == ["bert", "llama", "ranker"]


@given(st.lists(st.sampled_from(["1", "2", "10", "x", ""]), unique=True))
def test_versions_are_sorted_as_numbers(versions: list[str]) -> None:
    told = ServerAnswers(
        True, states={ModelKey("m", v): ModelEntry("m", v, "READY") for v in versions}
    )
    models = make_view(NO_PAGE, NO_ANSWERS.succeeded(told, 0.0)).models
    numbers = [int(model.key.version) for model in models if model.key.version.isdecimal()]
    assert numbers == sorted(numbers)
    assert len(models) == len(versions)
