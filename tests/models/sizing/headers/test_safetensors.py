"""Headers of safetensors files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from models.sizing.headers.files import safetensors, written
from penstock.core.errors import ModelLoadError
from penstock.models.sizing.headers.safetensors import read_safetensors


def test_bytes_are_added_up_by_data_type(tmp_path: Path) -> None:
    tensors = {"a": ("F16", [2, 3], 12), "b": ("F16", [4], 8), "c": ("F32", [5], 20)}
    path = written(tmp_path / "m.safetensors", safetensors(tensors, format="pt", dtype="?"))
    assert read_safetensors(path) == {"FP16": 20, "FP32": 20}


def test_types_keep_their_own_names_where_these_are_the_fields(tmp_path: Path) -> None:
    tensors = {"a": ("BF16", [1], 2), "b": ("F8_E4M3", [3], 3), "c": ("BOOL", [1], 1)}
    path = written(tmp_path / "m.safetensors", safetensors(tensors))
    assert read_safetensors(path) == {"BF16": 2, "FP8": 3, "BOOL": 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is cut short"),
        (struct.pack("<Q", 10**18) + b"{}", "behind its end"),
        (struct.pack("<Q", 2) + b"[]", "has no header of safetensors"),
        (struct.pack("<Q", 9) + b'{"a": {}}', "has a tensor 'a' that is none"),
        (safetensors({"a": ("F32", [9], 36)})[:-1], "tensor 'a' lies behind its end"),
        (struct.pack("<Q", 40_000) + b"[" * 40_000, "has no header of safetensors"),
    ],
)
def test_a_damaged_header_is_one_error(tmp_path: Path, content: bytes, said: str) -> None:
    path = written(tmp_path / "m.safetensors", content)
    with pytest.raises(ModelLoadError, match=said) as refused:
        read_safetensors(path)
    assert str(path) in refused.value.message


def test_a_header_longer_than_any_models_is_not_read(tmp_path: Path) -> None:
    """The file is as long as it says, and empty on the disk."""
    path = written(tmp_path / "m.safetensors", struct.pack("<Q", 10**12))
    with path.open("r+b") as file:
        file.truncate(10**12 + 8)
    with pytest.raises(ModelLoadError, match="longer than any model's"):
        read_safetensors(path)


def test_tensors_that_overlap_are_refused(tmp_path: Path) -> None:
    content = safetensors({"a": ("F32", [4], 16), "b": ("F32", [4], 16)})
    content = content.replace(b"[16, 32]", b"[ 0, 32]")
    with pytest.raises(ModelLoadError, match="overlap"):
        read_safetensors(written(tmp_path / "m.safetensors", content))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"m\.safetensors' cannot be read"):
        read_safetensors(tmp_path / "m.safetensors")
