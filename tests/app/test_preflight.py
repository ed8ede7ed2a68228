"""Preflight checks before anything is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.outcomes import raises_nothing
from penstock.app.preflight import StartError, check_repository
from penstock.settings import RepositorySettings


def refusal(path: Path | str) -> str:
    with pytest.raises(StartError) as refused:
        check_repository(RepositorySettings(paths=(str(path),)))
    return str(refused.value)


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_repository_that_is_not_a_folder_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / name
    assert refusal(path) == f"creating server: Internal - failed to stat file {path}"


def test_a_server_that_does_not_exit_on_errors_starts_without_its_repository(
    tmp_path: Path,
) -> None:
    paths = (str(tmp_path / "missing"),)
    with raises_nothing():
        check_repository(RepositorySettings(paths=paths, exit_on_error=False))


def test_scheme_that_nobody_knows_ends_the_start_and_addresses_are_not_asked_yet() -> None:
    begin = "creating server: Invalid argument - model repository 'ftp://host/models': the scheme"
    assert refusal("ftp://host/models").startswith(begin)
    with raises_nothing():
        check_repository(RepositorySettings(paths=("s3://bucket/models",)))
