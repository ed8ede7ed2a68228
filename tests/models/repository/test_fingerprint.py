"""Whether a folder's files have changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.models.repository.places import fingerprint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.py").write_text("1")
    (tmp_path / "config.pbtxt").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: os.utime(folder / "1" / "model.py", (1, 1)),
        lambda folder: (folder / "1" / "new").write_text(""),
        lambda folder: (folder / "2").mkdir(),
        lambda folder: (folder / "config.pbtxt").unlink(),
    ],
)
def test_every_change_is_seen(folder: Path, change: Callable[[Path], object]) -> None:
    before = fingerprint(folder)
    change(folder)
    assert fingerprint(folder) != before


def test_what_a_load_compiles_is_no_change(folder: Path) -> None:
    before = fingerprint(folder)
    (folder / "1" / "__pycache__").mkdir()
    (folder / "1" / "__pycache__" / "model.cpython-311.pyc").write_text("")
    assert fingerprint(folder) == before


def test_what_is_skipped_and_below_does_not_count(folder: Path) -> None:
    before = fingerprint(folder, {"1"})
    (folder / "1" / "model.py").write_text("22")
    assert fingerprint(folder, {"1"}) == before


def test_links_are_what_they_point_to_and_may_go_in_circles_or_nowhere(folder: Path) -> None:
    (folder / "circle").symlink_to(folder)
    (folder / "nowhere").symlink_to(folder / "missing")
    before = fingerprint(folder)
    (folder / "missing").write_text("here")
    assert {Path(path).name for path, _, _ in fingerprint(folder) - before} >= {"nowhere"}


def test_a_link_to_itself_does_not_count(folder: Path) -> None:
    before = fingerprint(folder)
    (folder / "itself").symlink_to(folder / "itself")
    assert fingerprint(folder) == before
