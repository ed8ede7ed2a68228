"""Zip archives of models: their names are paths, and what they unpack to has limits."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from penstock.system.archives import ArchiveError, ArchiveLimits, zip_members

LIMITS = ArchiveLimits(total=1 << 30, members=5, ratio=100)


def zipped(folder: Path, *members: str, content: bytes = b"") -> Path:
    path = folder / "model.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in members:
            archive.writestr(member, content)
    return path


def test_the_members_are_named(tmp_path: Path) -> None:
    names = ["m/data.pkl", "m/data/0", "m/code/"]
    assert zip_members(zipped(tmp_path, *names)) == names


def test_another_file_has_none(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"\x80\x02no archive")
    assert zip_members(tmp_path / "model.pt") == ()


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "m/../../x", "m//x", "m/a\nb", f"m/{'x' * 256}"]
)
def test_a_name_that_is_no_path_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveError, match="is no path"):
        zip_members(zipped(tmp_path, "m/data.pkl", name))


def test_so_many_members_are_refused(tmp_path: Path) -> None:
    archive = zipped(tmp_path, *map(str, range(6)))
    with pytest.raises(ArchiveError, match="more than 5 members"):
        zip_members(archive, LIMITS)


def test_a_bomb_is_refused_by_what_it_claims(tmp_path: Path) -> None:
    archive = zipped(tmp_path, "m/data/0", content=bytes(100 << 20))
    with pytest.raises(ArchiveError, match=r"more than 100 times its \d+,\d+ bytes"):
        zip_members(archive, LIMITS)
    with pytest.raises(ArchiveError, match="unpacks to more than 1,000 bytes"):
        zip_members(archive, ArchiveLimits(total=1000))


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    """Newer versions of `zipfile` say that it is no archive, which those who load it may not."""
    archive = zipped(tmp_path, "m/data.pkl", "m/data/0")
    damaged = archive.read_bytes().replace(b"PK\x01\x02", b"PK\x01\x03", 1)
    archive.write_bytes(damaged)
    with pytest.raises(ArchiveError, match=r"\w"):
        zip_members(archive)
