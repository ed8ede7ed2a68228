"""Which ensembles need which models."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.config import EnsembleScheduling, EnsembleStep, ModelConfig
from penstock.core.request import ANY_VERSION
from penstock.models.loading.dependencies import DependencyGraph, Failure, needs_of
from penstock.models.repository.repository import ModelFiles

READY = {1}


def _files(name: str, *needs: tuple[str, int]) -> ModelFiles:
    steps = tuple(EnsembleStep(model_name=model, model_version=version) for model, version in needs)
    scheduling = EnsembleScheduling(step=steps) if steps else None
    config = ModelConfig(name=name, ensemble_scheduling=scheduling)
    return ModelFiles(name, Path(name), config, True, {})


def _graph(**needs: str) -> DependencyGraph:
    """Models by name and what they need; those that are only needed are known as well."""
    graph = DependencyGraph()
    for name in {part for parts in needs.values() for part in parts.split()} - needs.keys():
        graph.add(_files(name), explicit=False)
    for name, parts in needs.items():
        graph.add(_files(name, *((part, ANY_VERSION) for part in parts.split())), explicit=True)
    return graph


def test_needs_are_the_models_of_the_steps_with_their_versions() -> None:
    files = _files("e", ("b", 1), ("a", ANY_VERSION), ("b", 3))
    assert needs_of(files.config) == {"b": {1, 3}, "a": {ANY_VERSION}}


def test_a_model_that_is_no_ensemble_needs_nothing() -> None:
    assert needs_of(_files("m").config) == {}


@pytest.mark.contract("M-08", "E-17")
def test_dependents_are_all_ensembles_above() -> None:
    graph = _graph(e="a b", f="e", g="b", h="c")
    assert graph.dependents({"a"}) == {"e", "f"}
    assert graph.dependents({"b"}) == {"e", "f", "g"}
    assert graph.dependents({"f"}) == set()


@pytest.mark.contract("M-08")
def test_models_are_ordered_behind_what_they_need() -> None:
    graph = _graph(a="z", z="m n", q="")
    assert graph.load_order({"a", "z", "m", "n", "q"}) == ["m", "n", "z", "a", "q"]


def test_a_circle_is_ordered_all_the_same() -> None:
    assert sorted(_graph(a="b", b="a").load_order({"a", "b"})) == ["a", "b"]


@pytest.mark.contract("M-08")
def test_an_ensemble_of_an_unknown_model_is_defect() -> None:
    graph = DependencyGraph()
    graph.add(_files("e", ("x", -1), ("y", -1)), explicit=True)
    assert graph.defect("e") == "ensemble e contains models that are not available or ambiguous: x"


@pytest.mark.contract("M-09")
@pytest.mark.parametrize(
    ("needs", "text"),
    [
        ({"a": "a"}, "a -> ... -> a -> a"),
        ({"a": "b", "b": "a"}, "a -> ... -> b -> a"),
        ({"a": "b m", "b": "c", "c": "a"}, "a -> ... -> c -> a"),
    ],
)
def test_ensembles_in_a_circle_are_defect(needs: dict[str, str], text: str) -> None:
    assert _graph(**needs).defect("a") == f"circular dependency between ensembles: {text}"


def test_an_ensemble_above_a_circle_is_not_in_it() -> None:
    assert _graph(e="a", a="b", b="a").defect("e") == ""


@pytest.mark.contract("M-08")
def test_unmet_dependencies_are_reported() -> None:
    graph = _graph(e="a")
    unmet = graph.unmet("e", {"a": set()}, {})
    assert unmet == "ensemble 'e' depends on 'a' which has no loaded version."
    failed = graph.unmet("e", {"a": set()}, {"a": Failure("no file")})
    assert failed == f"{unmet} Model 'a' loading failed with error: no file"
    invalid = graph.unmet("e", {"a": READY}, {"a": Failure("a circle", invalid=True)})
    assert invalid == (
        "ensemble 'e' depends on 'a' which is not valid. Model 'a' failed with error: a circle"
    )
    assert graph.unmet("e", {"a": READY}, {"a": Failure("a new version is bad")}) == ""


def test_a_version_that_is_named_has_to_be_loaded() -> None:
    graph = _graph(a="")
    graph.add(_files("e", ("a", ANY_VERSION), ("a", 1), ("a", 7)), explicit=True)
    assert graph.unmet("e", {"a": READY}, {}) == (
        "ensemble 'e' depends on 'a' whose required version 7 is not loaded."
    )
    assert graph.unmet("e", {"a": {1, 7}}, {}) == ""


@pytest.mark.contract("X-24")
def test_what_was_loaded_only_for_an_ensemble_goes_with_it() -> None:
    graph = _graph(e="a b f", f="c", g="b", c="")
    assert graph.unneeded("e") == {"e", "a"}  # g needs b; f and c were asked for by name
    graph.remove(["g", "f"])
    assert graph.unneeded("e") == {"e", "a", "b"}


@pytest.mark.contract("X-24")
def test_what_was_loaded_for_an_ensemble_in_an_ensemble_goes_as_well() -> None:
    graph = DependencyGraph()
    graph.add(_files("a"), explicit=False)
    graph.add(_files("inner", ("a", -1)), explicit=False)
    graph.add(_files("e", ("inner", -1)), explicit=True)
    assert graph.unneeded("e") == {"e", "inner", "a"}


def test_what_was_once_asked_for_by_name_stays_so() -> None:
    graph = _graph(a="")
    graph.add(_files("a"), explicit=False)
    assert graph["a"].explicit


@given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from("abcdef")), min_size=1))
def test_the_order_holds_wherever_there_is_no_circle(needs: dict[str, set[str]]) -> None:
    graph = _graph(**{name: " ".join(sorted(parts)) for name, parts in needs.items()})
    names = set("abcdef") & (needs.keys() | {part for parts in needs.values() for part in parts})
    order = graph.load_order(names)
    assert sorted(order) == sorted(names)
    for name in names:
        parts = needs.get(name, set())
        circle = any(part == name or part in graph.dependents({name}) for part in parts)
        assert circle or all(order.index(part) < order.index(name) for part in parts)
