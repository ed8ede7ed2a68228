"""Directories of PyTorch's archives."""

from __future__ import annotations

import json
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from models.sizing.headers.files import written
from penstock.core.errors import ModelLoadError
from penstock.models.sizing.headers.torch_archive import is_archive, read_torch_archive
from penstock.system.archives import ArchiveError, zip_members


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


def _with_locator(path: Path, *, beside: bool) -> Path:
    """An archive whose record of ZIP64 says more than its end, in its place or elsewhere."""
    content = _archive(path, {"a": b"b"}).read_bytes()
    end = content.rfind(b"PK\5\6")
    record = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, 999_999_999, 0)
    place = 0 if beside else end
    head = content[:end] if beside else content[:end] + record + bytes(9)
    locator = b"PK\6\7" + struct.pack("<IQI", 0, place, 1)
    return written(path, head + (record if beside else b"") + locator + content[end:])


@pytest.mark.parametrize("beside", [True, False])
def test_a_directory_of_zip64_counts_whatever_the_other_end_says(
    tmp_path: Path, beside: bool
) -> None:
    path = _with_locator(tmp_path / "m.pt", beside=beside)
    with pytest.raises(ModelLoadError, match="a directory of 999999999 bytes"):
        read_torch_archive(path)
    with pytest.raises(ArchiveError, match="a directory of 999999999 bytes"):
        zip_members(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("encrypted", [False, True])
def test_members_that_cannot_be_unpacked_are_one_error_at_most(
    tmp_path: Path, method: int, encrypted: bool
) -> None:
    path, name = tmp_path / "m.pt2", "m/model_weights_config.json"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, b'{"config": {}}' * 100)
    content = bytearray(path.read_bytes())
    begin = content.find(name.encode()) + len(name)
    content[begin : begin + 12] = b"\xff" * 12
    if encrypted:
        content[6] |= 1
        content[content.rfind(b"PK\1\2") + 8] |= 1
    with suppress(ModelLoadError):
        read_torch_archive(written(path, bytes(content)))


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
