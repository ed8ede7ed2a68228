"""Where LoRA adapters lie, and what operators may call them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.core.config import ModelConfig, Parameter
from penstock.core.errors import InvalidRequestError, ModelLoadError
from penstock_backends.vllm.arguments.engine_args import EngineArguments
from penstock_backends.vllm.lora import (
    FOLDERS,
    allowed_folders,
    checked_name,
    checked_path,
    keep_adapters,
    read_paths,
)


@pytest.mark.contract("VL-13")
def test_missing_file_fails_the_load_in_tritons_words(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError) as failed:
        read_paths(tmp_path)
    assert failed.value.message == f"Triton backend cannot find {tmp_path}/multi_lora.json."


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', '{"a": ""}'])
def test_file_of_another_form_fails_the_load(tmp_path: Path, text: str) -> None:
    (tmp_path / "multi_lora.json").write_text(text)
    with pytest.raises(ModelLoadError, match=r"multi_lora\.json"):
        read_paths(tmp_path)


def test_paths_may_be_relative_to_the_version_directory(tmp_path: Path) -> None:
    (tmp_path / "near").mkdir()
    given = {"near": "near", "hub": "some/adapter"}
    (tmp_path / "multi_lora.json").write_text(json.dumps(given))
    assert read_paths(tmp_path) == {"near": str(tmp_path / "near"), "hub": "some/adapter"}


@pytest.mark.parametrize(
    ("values", "count", "kept"),
    [({}, 2, 8), ({}, 20, 20), ({"max_loras": 32}, 2, 32), ({"max_cpu_loras": 1}, 20, 1)],
)
def test_engine_keeps_all_adapters_unless_it_is_told(
    values: dict[str, int], count: int, kept: int
) -> None:
    arguments = EngineArguments(dict(values), Path("model.json"))
    keep_adapters(arguments, count)
    assert arguments.values["max_cpu_loras"] == kept


@pytest.mark.parametrize("name", ["a", "sql-2", "My_Adapter.v1", "7"])
def test_plain_names_are_taken(name: str) -> None:
    assert checked_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "../x", "..", ".", "-x", "a/b", "a b", "..%2Fx", "a\n", "a" * 129, "ä", None, 1]
)
def test_other_names_are_refused(name: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"(?s)adapter name '.*' must be"):
        checked_name(name)


def test_folders_below_the_allowed_ones_are_taken(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "a").mkdir(parents=True)
    (second / "b").mkdir(parents=True)
    (first / "link").symlink_to(first / "a")
    folders = [first, second]
    assert checked_path("a", folders) == str(first / "a")
    assert checked_path("b", folders) == str(second / "b")
    assert checked_path(str(second / "b"), folders) == str(second / "b")
    assert checked_path("link", folders) == str(first / "a")


@pytest.mark.parametrize(
    "path",
    ["../outside", "a/../../outside", "/etc", "leak", "missing", "file", "", None, 1, "a\0b"],
)
def test_other_folders_are_refused(tmp_path: Path, path: object) -> None:
    allowed = tmp_path / "allowed"
    (allowed / "a").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (allowed / "leak").symlink_to(tmp_path / "outside")
    (allowed / "file").touch()
    with pytest.raises(InvalidRequestError):
        checked_path(path, [allowed])


def _allowed(tmp_path: Path, folders: str) -> list[Path]:
    config = ModelConfig(name="m", parameters={FOLDERS: Parameter(folders)})
    return allowed_folders(config, tmp_path)


def test_parameter_names_further_folders(tmp_path: Path) -> None:
    found = _allowed(tmp_path, "/srv/a:/srv/b:")
    assert found == [tmp_path, Path("/srv/a"), Path("/srv/b")]


def test_relative_folder_in_the_parameter_fails_the_load(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="'adapters' is not an absolute path"):
        _allowed(tmp_path, "adapters")
