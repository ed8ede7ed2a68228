"""Directories of PyTorch's archives."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import pytest

from models.sizing.headers.files import written
from penstock.core.errors import ModelLoadError
from penstock.models.sizing.headers.torch_archive import is_archive, read_torch_archive


def _archive(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_a_script_has_the_bytes_of_its_files(tmp_path: Path) -> None:
    files = {"m/data.pkl": b"....", "m/data/0": bytes(1000), "m/constants/0": bytes(24)}
    path = _archive(tmp_path / "model.pt", files)
    assert read_torch_archive(path) == {"as stored": 1028}
    assert is_archive(path)


def test_a_package_of_torch_export_says_its_data_types(tmp_path: Path) -> None:
    entries = {
        "a": {"path_name": "weight_0", "tensor_meta": {"dtype": 7}},
        "b": {"path_name": "weight_1", "tensor_meta": {"dtype": 13}},
    }
    config = json.dumps({"config": entries}).encode()
    files = {
        "m/data/weights/model_weights_config.json": config,
        "m/data/weights/weight_0": bytes(400),
        "m/data/weights/weight_1": bytes(20),
    }
    found = read_torch_archive(_archive(tmp_path / "model.pt2", files))
    assert found == {"FP32": 400, "BF16": 20, "as stored": len(config)}


@pytest.mark.parametrize("config", [b"[]", b"{", b'{"config": {"a": 1}}', b'{"config": 1}'])
def test_types_that_cannot_be_read_are_not_known(tmp_path: Path, config: bytes) -> None:
    files = {"m/model_weights_config.json": config, "m/weight_0": bytes(10)}
    found = read_torch_archive(_archive(tmp_path / "model.pt2", files))
    assert found == {"as stored": 10 + len(config)}


def _with_directory_of(path: Path, size: int) -> Path:
    content = bytearray(_archive(path, {"a": b"b"}).read_bytes())
    struct.pack_into("<I", content, content.rfind(b"PK\5\6") + 12, size)
    return written(path, bytes(content))


def test_a_directory_longer_than_any_models_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="a directory of 999999999 bytes"):
        read_torch_archive(_with_directory_of(tmp_path / "m.pt", 999_999_999))


@pytest.mark.parametrize("size", [0xFFFF_FFFF, 100])
def test_a_damaged_directory_is_one_error(tmp_path: Path, size: int) -> None:
    with pytest.raises(ModelLoadError, match="is a damaged archive"):
        read_torch_archive(_with_directory_of(tmp_path / "m.pt", size))


def test_what_is_no_archive_is_said(tmp_path: Path) -> None:
    path = written(tmp_path / "m.pt", b"PK\3\4" + bytes(100))
    with pytest.raises(ModelLoadError, match="is no archive of PyTorch"):
        read_torch_archive(path)


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    """A stored file that says to be larger than any file can become."""
    content = bytearray(_archive(tmp_path / "m.pt", {"a": bytes(100)}).read_bytes())
    struct.pack_into("<I", content, content.rfind(b"PK\1\2") + 24, 0xFFFF_FFF0)
    with pytest.raises(ModelLoadError, match="'a' is of 4294967280 bytes"):
        read_torch_archive(written(tmp_path / "m.pt", bytes(content)))
