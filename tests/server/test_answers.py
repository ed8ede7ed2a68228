"""The index of the repository: one line a version, sorted, and models that are there twice."""

from __future__ import annotations

from penstock.models.serving.catalog import VersionState, VersionStatus
from penstock.server.answers import ModelIndexEntry, model_index


def test_versions_are_listed_by_model_and_models_never_loaded_by_name() -> None:
    known = [
        ("b", 1, VersionStatus(VersionState.READY)),
        ("a", 2, VersionStatus(VersionState.UNAVAILABLE, "no")),
    ]
    lines = model_index({"a", "b", "c"}, set(), {"a", "b"}, known)
    assert lines == [
        ModelIndexEntry("a", "2", "UNAVAILABLE", "no"),
        ModelIndexEntry("b", "1", "READY", ""),
        ModelIndexEntry("c"),
    ]


def test_a_model_in_two_repositories_has_one_line_whatever_was_loaded() -> None:
    lines = model_index({"a"}, {"a"}, {"a"}, [("a", 1, VersionStatus(VersionState.READY))])
    text = "model appears in two or more repositories"
    assert lines == [ModelIndexEntry("a", "", "UNAVAILABLE", text)]


def test_a_model_outside_the_repositories_is_not_listed() -> None:
    assert (
        model_index(set(), set(), {"gone"}, [("gone", 1, VersionStatus(VersionState.READY))]) == []
    )
