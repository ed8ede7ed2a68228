"""Extraction of archives, whole and damaged."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from penstock_backends.python.environment.environment import extract


def packed(tmp_path: Path, mode: Any = "w:gz") -> Path:
    content = tmp_path / "content"
    content.mkdir()
    for number in range(20):
        (content / f"file-{number}").write_bytes(os.urandom(4096))
    archive = tmp_path / "own.tar"
    with tarfile.open(archive, mode) as made:
        made.add(content, ".")
    return archive


def damage(archive: Path, byte: int) -> None:
    data = bytearray(archive.read_bytes())
    data[byte] ^= 0xFF
    archive.write_bytes(data)


@pytest.mark.contract("PY-35")
@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_archive_is_unpacked_however_it_is_compressed(tmp_path: Path, mode: str) -> None:
    extract(packed(tmp_path, mode), tmp_path / "own")
    assert len(list((tmp_path / "own").iterdir())) == 20


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_archive_that_is_cut_off_is_refused(tmp_path: Path, mode: str) -> None:
    archive = packed(tmp_path, mode)
    os.truncate(archive, 30_000)
    with pytest.raises(ValueError, match=r"\w"):
        extract(archive, tmp_path / "own")


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("where", [0.1, 0.5, 0.9])
def test_archive_with_a_wrong_byte_is_refused(tmp_path: Path, mode: str, where: float) -> None:
    archive = packed(tmp_path, mode)
    damage(archive, int(archive.stat().st_size * where))
    with pytest.raises(ValueError, match=r"\w"):
        extract(archive, tmp_path / "own")


def test_archive_does_not_reach_out_of_its_directory(tmp_path: Path) -> None:
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as made:
        made.addfile(tarfile.TarInfo("../outside"))
    with pytest.raises(ValueError, match="outside the destination"):
        extract(archive, tmp_path / "own")
    assert not (tmp_path / "outside").exists()
