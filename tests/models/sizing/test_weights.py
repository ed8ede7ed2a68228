"""Weights of files and folders: which files count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from models.sizing.headers.files import gguf, onnx, safetensors, tensor, written
from penstock.core.errors import ModelLoadError
from penstock.models.sizing.weights import read_weights, weight_files

_HALVES = safetensors({"a": ("F16", [4], 8)})
_ONNX = onnx(tensor(1, [4], raw=bytes(16)))


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("model.onnx", _ONNX, {"FP32": 16}),
        ("a.safetensors", _HALVES, {"FP16": 8}),
        ("a.gguf", gguf({"a": (0, [4], 16)}), {"FP32": 16}),
        ("model.plan", bytes(99), {"as stored": 99}),
        ("model.tflite", bytes(98), {"as stored": 98}),
        ("model.pt", b"\x80\x02}q.", {"as stored": 5}),
        ("xgboost.ubj", bytes(97), {"as stored": 97}),
        ("model.txt", bytes(96), {"as stored": 96}),
    ],
)
def test_a_file_is_read_by_its_ending(
    tmp_path: Path, name: str, content: bytes, found: dict[str, int]
) -> None:
    path = written(tmp_path / name, content)
    assert read_weights(path).sizes == found
    assert read_weights(tmp_path).sizes == found


def test_of_several_formats_one_counts(tmp_path: Path) -> None:
    written(tmp_path / "model.safetensors", _HALVES)
    written(tmp_path / "pytorch_model.bin", bytes(100))
    written(tmp_path / "model.onnx", _ONNX)
    assert read_weights(tmp_path).sizes == {"FP16": 8}


def test_parts_are_those_of_the_index(tmp_path: Path) -> None:
    for name in ("model-00001-of-00002", "model-00002-of-00002", "other"):
        written(tmp_path / f"{name}.safetensors", _HALVES)
    parts = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": parts}))
    assert read_weights(tmp_path).sizes == {"FP16": 16}


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"weight_map": {"a": "../x"}}',
        '{"weight_map": {"a": "gone"}}',
        '{"weight_map": 1}',
    ],
)
def test_an_index_that_names_what_is_not_beside_it_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelLoadError, match="index"):
        read_weights(tmp_path)


def test_the_same_weights_in_the_makers_own_format_do_not_count(tmp_path: Path) -> None:
    written(tmp_path / "model.safetensors", _HALVES)
    written(tmp_path / "consolidated.safetensors", _HALVES)
    assert [path.name for path in weight_files(tmp_path)] == ["model.safetensors"]


def test_a_saved_model_has_its_graph_and_its_variables(tmp_path: Path) -> None:
    variables = tmp_path / "model.savedmodel" / "variables"
    variables.mkdir(parents=True)
    written(variables.parent / "saved_model.pb", bytes(30))
    written(variables / "variables.data-00000-of-00001", bytes(400))
    written(variables / "variables.index", bytes(7))
    assert read_weights(tmp_path).sizes == {"as stored": 430}
    assert read_weights(tmp_path / "model.savedmodel").sizes == {"as stored": 430}


def test_a_folder_of_an_engine_for_several_gpus_has_the_plans_of_all(tmp_path: Path) -> None:
    written(tmp_path / "rank0.engine", bytes(50))
    written(tmp_path / "rank1.engine", bytes(51))
    assert read_weights(tmp_path).sizes == {"as stored": 101}


def test_a_folder_without_weights_has_none(tmp_path: Path) -> None:
    written(tmp_path / "model.py", b"pass")
    assert read_weights(tmp_path).sizes == {}


def test_of_a_header_longer_than_is_read_the_files_size_counts_and_that_is_said(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "m.safetensors", (40 << 20).to_bytes(8, "little"))
    with path.open("r+b") as file:
        file.truncate(50 << 20)
    found = read_weights(tmp_path)
    assert found.sizes == {"as stored": 50 << 20}
    assert found.notes == [
        f"'{path}' has a header longer than any model's: the file's size is counted"
    ]
