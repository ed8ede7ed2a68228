"""The catalog: states of versions, which of them serve, and who reads what they are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.core.change_notifier import ChangeNotifier
from penstock.core.config import EnsembleScheduling, EnsembleStep, ModelConfig
from penstock.core.errors import NotFoundError, UnavailableError
from penstock.core.request import ANY_VERSION
from penstock.models.serving.answers import EngineMetric, is_alike
from penstock.models.serving.catalog import ModelCatalog, VersionState, VersionStatus
from penstock.models.serving.loaded_model import LoadedModel


def model(name: str, *steps: str) -> LoadedModel:
    """A model that serves; an ensemble if it has steps."""
    scheduling = (
        EnsembleScheduling(step=tuple(EnsembleStep(model_name=step) for step in steps))
        if steps
        else None
    )
    config = ModelConfig(name, ensemble_scheduling=scheduling)
    return cast(LoadedModel, SimpleNamespace(config=config))


def serve(catalog: ModelCatalog, name: str, version: int, *steps: str) -> LoadedModel:
    serving = model(name, *steps)
    status = catalog.add(name).status(version)
    status.move(VersionState.LOADING)
    status.move(VersionState.READY, model=serving)
    return serving


def test_the_highest_version_that_serves_is_found_and_others_by_their_numbers() -> None:
    catalog = ModelCatalog()
    first, third = serve(catalog, "m", 1), serve(catalog, "m", 3)
    assert catalog.find("m", ANY_VERSION) is third
    assert catalog.find("m", 1) is first
    catalog.versions("m").status(3).move(VersionState.UNLOADING)
    assert catalog.find("m", ANY_VERSION) is first
    assert catalog.served("m") == {1: first}
    assert [*catalog.models()] == [first]


@pytest.mark.parametrize(
    ("name", "version", "error", "text"),
    [
        ("nope", ANY_VERSION, NotFoundError, "'nope' is not found"),
        ("nope", 2, NotFoundError, "'nope' is not found"),
        ("m", 7, NotFoundError, "'m' version 7 is not found"),
        ("m", 2, UnavailableError, "'m' version 2 is not at ready state"),
        ("down", ANY_VERSION, NotFoundError, "'down' has no available versions"),
    ],
)
def test_what_does_not_serve_is_refused_with_the_reason(
    name: str, version: int, error: type[Exception], text: str
) -> None:
    catalog = ModelCatalog()
    serve(catalog, "m", 1)
    catalog.add("m").status(2).move(VersionState.LOADING)
    catalog.add("down").status(1).move(VersionState.LOADING)
    with pytest.raises(error) as refused:
        catalog.find(name, version)
    assert str(refused.value) == f"Request for unknown model: {text}"


ALLOWED = {
    ("UNKNOWN", "LOADING"),
    ("LOADING", "READY"),
    ("LOADING", "UNAVAILABLE"),
    ("READY", "READY"),
    ("READY", "UNLOADING"),
    ("UNLOADING", "UNAVAILABLE"),
    ("UNAVAILABLE", "LOADING"),
}


@pytest.mark.parametrize("before", list(VersionState))
@pytest.mark.parametrize("after", list(VersionState))
def test_states_follow_each_other_as_the_table_says(
    before: VersionState, after: VersionState
) -> None:
    status = VersionStatus(before)
    if (before.value, after.value) in ALLOWED:
        status.move(after, "why")
        assert (status.state, status.reason) == (after, "why")
        return
    with pytest.raises(AssertionError) as refused:
        status.move(after)
    assert str(refused.value) == f"a model version cannot go from {before} to {after}"


def test_every_move_is_a_change() -> None:
    catalog = ModelCatalog()
    status = catalog.add("m").status(1)
    for state in (VersionState.LOADING, VersionState.UNAVAILABLE):
        before = catalog.changes.next
        status.move(state)
        assert before.is_set()
    assert isinstance(catalog.changes, ChangeNotifier)


def test_a_model_is_complete_when_all_serve_or_were_unloaded() -> None:
    catalog = ModelCatalog()
    assert catalog.complete()
    versions = catalog.add("m")
    seen = [catalog.complete()]
    serve(catalog, "m", 1)
    seen.append(catalog.complete())
    second = versions.status(2)
    second.move(VersionState.LOADING)
    seen.append(catalog.complete())
    second.move(VersionState.UNAVAILABLE, "unloaded")
    seen.append(catalog.complete())
    second.move(VersionState.LOADING)
    second.move(VersionState.UNAVAILABLE, "broken")
    assert [*seen, catalog.complete()] == [False, True, False, True, False]


def test_failures_are_kept_until_a_load_goes_well() -> None:
    catalog = ModelCatalog()
    serve(catalog, "m", 1)
    catalog.record_failure("m", "broken")
    catalog.versions("m").status(1).reload_failed("broken")
    down = catalog.add("m").status(2)
    down.move(VersionState.LOADING)
    down.move(VersionState.UNAVAILABLE, "never")
    assert dict(catalog.failures) == {"m": "broken"}
    assert catalog.versions("m").status(1).reason == "reload failed: broken"
    catalog.forget_failure("m")
    assert dict(catalog.failures) == {}
    assert [each.reason for _, _, each in catalog.statuses()] == ["", "never"]
    catalog.forget_failure("nope")
    assert catalog.names() == ["m"]


def test_models_and_statuses_come_in_order() -> None:
    catalog = ModelCatalog()
    for name, version in (("b", 2), ("a", 3), ("b", 1)):
        serve(catalog, name, version)
    assert [(name, version) for name, version, _ in catalog.statuses()] == [
        *(("a", 3), ("b", 1)),
        ("b", 2),
    ]
    assert [one.config.name for one in catalog.models()] == ["a", "b", "b"]
    assert catalog.names() == ["a", "b"]


def test_inputs_of_an_ensemble_are_read_by_all_within_it() -> None:
    catalog = ModelCatalog()
    assert catalog.readers_of("e") == frozenset()
    serve(catalog, "e", 1, "inner", "a")
    serve(catalog, "inner", 1, "b", "inner")
    serve(catalog, "a", 1)
    assert catalog.readers_of("e") == {"e", "inner", "a", "b"}
    assert catalog.readers_of("a") == {"a"}


@pytest.mark.parametrize(
    ("name", "alike"),
    [
        ("cache_usage", True),
        ("engine_info", True),
        ("busy_fraction", True),
        ("tokens_per", True),
        ('jobs{kind="cache_usage"}', True),
        ("jobs_total", False),
        ("usage_total", False),
        ('jobs{kind="short"}', False),
    ],
)
def test_shares_and_facts_of_instances_are_not_added_up(name: str, alike: bool) -> None:
    assert is_alike(name) is alike


def test_labels_of_a_number_are_apart_from_its_name() -> None:
    metric: Any = EngineMetric('jobs{kind="short",place="queue"}', "m", "1")
    assert metric.family == "jobs"
    assert metric.labels == (("kind", "short"), ("place", "queue"))
