"""What is shown of a server: rates and averages between the last two readings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock_client.reading.counters import (
    Machine,
    ModelCounters,
    ModelKey,
    ProcessKey,
    ProcessNumbers,
)
from penstock_client.reading.kserve import ServerAnswers
from penstock_client.reading.metrics_page import MetricsPage
from penstock_client.reading.views import ModelEntry
from penstock_client.top.model_view import BatchPair, ModelView, Pair, model_view
from penstock_client.top.readings import Readings

SORTS = ("rate", "queue", "latency", "errors", "name")

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the models; rates are per second and `None` before the second reading."""

    requests: float | None
    tokens: float | None
    errors: float | None
    in_flight: float | None
    pending: float | None


@dataclass(frozen=True, slots=True)
class View:
    """One frame. `problems` say which endpoint does not answer, and why, by its name.

    `stale`: neither endpoint answers, since `failing_since`, and figures are the last ones.
    `ready` is `None` where the HTTP endpoint does not answer; `begun` says whether any endpoint
    has ever answered. `not_loaded` counts models that lie in the repository only.
    """

    server: str
    ready: bool | None
    begun: bool
    stale: bool
    problems: Mapping[str, str]
    failing_since: float | None
    machine: Machine
    models: Sequence[ModelView]
    not_loaded: int
    processes: Mapping[ProcessKey, ProcessNumbers]
    totals: Totals


def make_view(
    page: Readings[MetricsPage], answers: Readings[ServerAnswers], only: Collection[str] = ()
) -> View:
    """The frame of the last two readings of both endpoints; models are sorted by name.

    Models beside those named by `only`, if any, are left out.
    """
    scrape = page.now.value if page.now else MetricsPage()
    told = answers.now.value if answers.now else ServerAnswers(ready=False)
    everything = {*scrape.models, *told.counters, *_tried(told)}
    keys = {key for key in everything if not only or key.name in only}
    processes = {
        key: each for key, each in scrape.processes.items() if not only or key.model in only
    }
    models = [
        model_view(
            key,
            list(_pairs(key, page, answers)),
            _batches(key, answers),
            told.states.get(key, ModelEntry(key.name, key.version)),
            _memory(key, processes),
        )
        for key in sorted(keys, key=_order)
    ]
    named = {key.name for key in everything}
    failing = [each.failing_since for each in (page, answers) if each.error]
    return View(
        server=told.server,
        ready=told.ready if _answers(answers) else None,
        begun=page.now is not None or answers.now is not None,
        stale=not _answers(page) and not _answers(answers),
        problems={
            name: each.error for name, each in (("metrics", page), ("http", answers)) if each.error
        },
        failing_since=min(failing, default=None),
        machine=scrape.machine,
        models=models,
        not_loaded=len({key.name for key in told.states} - named),
        processes=processes,
        totals=_totals(models),
    )


def sort_models(models: Iterable[ModelView], sort: str) -> list[ModelView]:
    """The models in the order of `sort`, one of `SORTS`: the largest first, unknown values last."""
    by_name = sorted(models, key=lambda model: _order(model.key))
    if sort == "name":
        return by_name
    return sorted(by_name, key=lambda model: -(model.sort_value(sort) or 0.0))


def _answers(readings: Readings[MetricsPage] | Readings[ServerAnswers]) -> bool:
    return readings.now is not None and not readings.error


def _tried(told: ServerAnswers) -> set[ModelKey]:
    """Versions that were ever loaded or tried."""
    return {key for key, state in told.states.items() if state.state}


def _order(key: ModelKey) -> tuple[str, int, str]:
    """Names first, then versions as numbers."""
    return key.name, int(key.version) if key.version.isdecimal() else 0, key.version


def _pairs(
    key: ModelKey, page: Readings[MetricsPage], answers: Readings[ServerAnswers]
) -> Iterator[Pair]:
    """The counters of a model: of an endpoint that answers first, then of the metrics page."""
    found = [
        (bool(page.error), _pair(page, lambda value: value.models.get(key))),
        (bool(answers.error), _pair(answers, lambda value: value.counters.get(key))),
    ]
    for _, pair in sorted(found, key=lambda each: each[0]):
        if pair is not None:
            yield pair


def _pair(
    readings: Readings[Value], counters: Callable[[Value], ModelCounters | None]
) -> Pair | None:
    """Both readings of a model; one that was not there before had counted nothing."""
    now = counters(readings.now.value) if readings.now else None
    if now is None:
        return None
    if readings.before is None:
        return Pair(None, now, 0.0)
    return Pair(counters(readings.before.value) or ModelCounters(), now, _seconds(readings))


def _batches(key: ModelKey, answers: Readings[ServerAnswers]) -> BatchPair | None:
    if answers.now is None:
        return None
    before = answers.before.value.batches.get(key, {}) if answers.before else None
    return BatchPair(before, answers.now.value.batches.get(key, {}), _seconds(answers))


def _seconds(readings: Readings[Value]) -> float:
    if readings.now is None or readings.before is None:
        return 0.0
    return readings.now.at - readings.before.at


def _memory(key: ModelKey, processes: Mapping[ProcessKey, ProcessNumbers]) -> float | None:
    """Bytes of the model's processes."""
    return _sum(
        numbers.memory
        for process, numbers in processes.items()
        if (process.model, process.version) == key
    )


def _totals(models: Sequence[ModelView]) -> Totals:
    return Totals(
        requests=_sum(model.requests for model in models),
        tokens=_sum(model.tokens for model in models),
        errors=_sum(model.errors for model in models),
        in_flight=_sum(model.in_flight for model in models),
        pending=_sum(model.pending for model in models),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
