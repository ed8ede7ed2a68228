"""The files of weights that vLLM opens, as `penstock check` asks for them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.core.config import ModelConfig
from penstock.core.errors import ModelLoadError
from penstock_backends.vllm import VllmBackend

_SHARDS = ("a.safetensors", "b.safetensors")
_ONE = "consolidated.safetensors"


def _opened(version: Path, files: Sequence[str], **values: str) -> Sequence[str]:
    """The names of files that are opened, of a folder with these."""
    (version / "weights").mkdir(exist_ok=True)
    for file in files:
        (version / "weights" / file).write_bytes(b"")
    (version / "model.json").write_text(json.dumps({"model": "weights", **values}))
    opened = VllmBackend.weight_files(ModelConfig("m", backend="vllm"), version, {})
    assert {path.parent for path in opened} <= {version / "weights"}
    return [path.name for path in opened]


def _index(version: Path, text: str, name: str = "model") -> None:
    (version / "weights").mkdir()
    (version / "weights" / f"{name}.safetensors.index.json").write_text(text)


def _naming(*files: str) -> str:
    return json.dumps({"weight_map": {file: file for file in files}})


@pytest.mark.parametrize(
    ("files", "loader", "opened"),
    [
        (_SHARDS, "auto", _SHARDS),
        (_SHARDS, "Safetensors", _SHARDS),
        ((*_SHARDS, _ONE), "auto", [_ONE]),
        ((*_SHARDS, _ONE), "hf", [*_SHARDS, _ONE]),
        (_SHARDS, "mistral", []),
        (_SHARDS, "dummy", []),
        (_SHARDS, "pt", []),
        (["model.bin"], "auto", []),
    ],
)
def test_it_depends_on_the_loader(
    tmp_path: Path, files: Sequence[str], loader: str, opened: Sequence[str]
) -> None:
    assert _opened(tmp_path, files, load_format=loader) == [*opened]


def test_files_that_the_index_does_not_name_are_left_alone(tmp_path: Path) -> None:
    _index(tmp_path, _naming("a.safetensors"))
    assert _opened(tmp_path, _SHARDS) == ["a.safetensors"]


def test_official_files_have_an_index_of_their_own(tmp_path: Path) -> None:
    _index(tmp_path, _naming("another.safetensors"))
    assert _opened(tmp_path, (*_SHARDS, _ONE)) == [_ONE]


def test_a_model_that_is_fetched_has_no_files_yet(tmp_path: Path) -> None:
    assert _opened(tmp_path, _SHARDS, model="some/name") == []


@pytest.mark.parametrize("file", ["c.safetensors", "../a.safetensors", "\0"])
def test_a_file_that_is_named_and_not_there_is_refused(tmp_path: Path, file: str) -> None:
    _index(tmp_path, _naming("a.safetensors", file))
    with pytest.raises(ModelLoadError, match="which is not beside it"):
        _opened(tmp_path, _SHARDS)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": []}', "[" * 100_000])
def test_an_index_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    _index(tmp_path, text)
    with pytest.raises(ModelLoadError, match="is no index of weights"):
        _opened(tmp_path, _SHARDS)


def test_links_are_opened_and_pipes_are_not(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "gone.safetensors").symlink_to("nowhere")
    (tmp_path / "weights" / "link.safetensors").symlink_to("a.safetensors")
    os.mkfifo(tmp_path / "weights" / "pipe.safetensors")
    opened = _opened(tmp_path, ["a.safetensors"])
    assert opened == ["a.safetensors", "gone.safetensors", "link.safetensors"]
