"""What has changed since a model was loaded."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import write_model
from penstock.core.config import InstanceGroup
from penstock.models.repository.repository import ModelFiles, ModelRepository
from penstock.models.repository.version_files import Origin, origin_of

pytestmark = pytest.mark.contract("M-06")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_model(tmp_path, "m", (1, 2))
    (tmp_path / "m" / "1" / "model.py").write_text("one")
    (tmp_path / "m" / "labels.txt").write_text("cat")
    return tmp_path / "m"


def _files(model: Path) -> ModelFiles:
    return ModelRepository([model.parent]).read("m")


def _resized(origin: Origin, count: int = 2) -> Origin:
    group = (InstanceGroup(count=count),)
    return replace(origin, config=replace(origin.config, instance_group=group))


def test_another_number_of_instances_is_a_difference_in_instances(model: Path) -> None:
    origin = origin_of(_files(model), 1)
    assert _resized(origin).differs_in_instances_only(origin)


def test_no_difference_is_none_in_instances(model: Path) -> None:
    origin = origin_of(_files(model), 1)
    assert not origin.differs_in_instances_only(origin_of(_files(model), 1))


def test_other_fields_are_more_than_instances(model: Path) -> None:
    origin = origin_of(_files(model), 1)
    other = replace(_resized(origin), config=replace(_resized(origin).config, max_batch_size=4))
    assert not other.differs_in_instances_only(origin)


@pytest.mark.parametrize(
    ("change", "only"),
    [
        (lambda path: (path / "1" / "model.py").write_text("two"), False),
        (lambda path: os.utime(path / "1" / "model.py", ns=(1, 1)), False),
        (lambda path: (path / "1" / "more.bin").write_bytes(b""), False),
        (lambda path: (path / "labels.txt").unlink(), False),
        (lambda path: (path / "config.pbtxt").write_text("backend: 'fake' "), True),
        (lambda path: (path / "2" / "model.py").write_text("other version"), True),
    ],
)
def test_files_of_the_version_count(
    model: Path, change: Callable[[Path], object], only: bool
) -> None:
    origin = origin_of(_files(model), 1)
    change(model)
    assert _resized(origin_of(_files(model), 1)).differs_in_instances_only(origin) == only


def test_files_behind_a_link_count(model: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    (model / "1").rename(elsewhere)
    (model / "1").symlink_to(elsewhere)
    origin = origin_of(_files(model), 1)
    (elsewhere / "model.py").write_text("two")
    assert origin_of(_files(model), 1).files != origin.files


def test_a_link_to_nowhere_is_no_file(model: Path) -> None:
    (model / "1" / "gone").symlink_to(model / "nowhere")
    assert origin_of(_files(model), 1).files
