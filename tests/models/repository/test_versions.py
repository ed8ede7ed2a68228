"""Versions of models on disk, and which of them are served."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.repository.files import CONFIG, read_model, write_files
from penstock.core.config import (
    AllVersions,
    LatestVersions,
    ModelConfig,
    SpecificVersions,
    VersionPolicy,
)
from penstock.core.errors import ModelLoadError
from penstock.models.repository.repository import ModelFiles, select_versions, versions_to_load


@pytest.mark.contract("R-04")
@pytest.mark.parametrize(
    ("folder", "warning"),
    [
        ("01", "ignore version directory '01' which contains leading zeros in its directory name"),
        ("abc", "ignore version directory 'abc' which fails to convert to integral number"),
        ("-1", "ignore version directory '-1' which fails to convert to integral number"),
        ("²", "ignore version directory '²' which fails to convert to integral number"),
        (
            str(1 << 63),
            f"ignore version directory '{1 << 63}' which fails to convert to integral number",
        ),
    ],
)
def test_folder_that_is_no_version_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, folder: str, warning: str
) -> None:
    write_files(tmp_path, "m/config.pbtxt", text=CONFIG)
    write_files(tmp_path, "m/0/", f"m/{folder}/", "m/labels.txt")
    assert list(read_model(tmp_path).versions) == [0]
    assert caplog.messages == [warning]


def test_folders_with_other_uses_are_ignored_silently(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, "m/config.pbtxt", text=CONFIG)
    write_files(tmp_path, "m/warmup/", "m/initial_state/", "m/configs/", "m/.git/")
    assert read_model(tmp_path).versions == {}
    assert caplog.messages == []


LATEST, ALL = VersionPolicy(latest=LatestVersions(2)), VersionPolicy(all=AllVersions())


@pytest.mark.contract("R-05", "C-06")
@pytest.mark.parametrize(
    ("policy", "selected"),
    [
        (None, [7]),
        (VersionPolicy(), [7]),
        (VersionPolicy(latest=LatestVersions(1)), [7]),
        (VersionPolicy(latest=LatestVersions()), []),
        (LATEST, [3, 7]),
        (VersionPolicy(latest=LatestVersions(9)), [1, 3, 7]),
        (ALL, [1, 3, 7]),
        (VersionPolicy(specific=SpecificVersions((7, 1, 5, 7))), [1, 7]),
        (VersionPolicy(specific=SpecificVersions((5,))), []),
    ],
)
def test_policy_selects_versions(policy: VersionPolicy | None, selected: list[int]) -> None:
    assert select_versions(policy, [3, 7, 1]) == selected


@pytest.mark.parametrize("policy", [None, LATEST, ALL])
def test_nothing_is_selected_from_nothing(policy: VersionPolicy | None) -> None:
    assert select_versions(policy, []) == []


def _files(*versions: int) -> ModelFiles:
    folders = {number: Path(str(number)) for number in versions}
    return ModelFiles("m", Path("m"), ModelConfig("m"), has_config=True, versions=folders)


def test_versions_to_load_are_folders() -> None:
    assert versions_to_load(_files(1, 2, 3), LATEST) == {2: Path("2"), 3: Path("3")}


@pytest.mark.contract("C-06")
def test_version_that_is_not_there_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    policy = VersionPolicy(specific=SpecificVersions((1, 7)))
    assert list(versions_to_load(_files(1, 2), policy)) == [1]
    assert caplog.messages == [
        "version 7 is specified for model 'm', but the version directory is not present"
    ]


@pytest.mark.contract("M-14")
def test_model_without_a_version_to_load_is_refused() -> None:
    text = "at least one version must be available under the version policy of model 'm'"
    with pytest.raises(ModelLoadError, match=f"^{text}$"):
        versions_to_load(_files(), None)
