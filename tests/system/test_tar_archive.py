"""Extraction of archives, whole, damaged and hostile."""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.system.archives import ArchiveError, ArchiveLimits
from penstock.system.tar_archive import unpack_tar


def packed(tmp_path: Path, mode: Any = "w:gz") -> Path:
    content = tmp_path / "content"
    content.mkdir()
    for number in range(20):
        (content / f"file-{number}").write_bytes(os.urandom(4096))
    (content / "folder").mkdir()
    (content / "folder" / "up").symlink_to("../file-1")
    os.link(content / "file-1", content / "folder" / "same")
    archive = tmp_path / "own.tar"
    with tarfile.open(archive, mode) as made:
        made.add(content, ".")
    return archive


def damage(archive: Path, byte: int) -> None:
    data = bytearray(archive.read_bytes())
    data[byte] ^= 0xFF
    archive.write_bytes(data)


def member(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


def made_of(tmp_path: Path, *members: tarfile.TarInfo, mode: Any = "w") -> Path:
    """An archive of members without content."""
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, mode) as made:
        for each in members:
            made.addfile(each, io.BytesIO(bytes(each.size)))
    return archive


@pytest.mark.contract("PY-35")
@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_archive_is_unpacked_however_it_is_compressed(tmp_path: Path, mode: str) -> None:
    unpack_tar(packed(tmp_path, mode), own := tmp_path / "own")
    assert len(list(own.iterdir())) == 21
    one = (tmp_path / "content" / "file-1").read_bytes()
    assert [(own / "folder" / name).read_bytes() for name in ("up", "same")] == [one, one]


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_archive_that_is_cut_off_is_refused(tmp_path: Path, mode: str) -> None:
    archive = packed(tmp_path, mode)
    os.truncate(archive, 30_000)
    with pytest.raises(ArchiveError, match=r"\w"):
        unpack_tar(archive, tmp_path / "own")


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("where", [0.1, 0.5, 0.9])
def test_archive_with_a_wrong_byte_is_refused(tmp_path: Path, mode: str, where: float) -> None:
    archive = packed(tmp_path, mode)
    damage(archive, int(archive.stat().st_size * where))
    with pytest.raises(ArchiveError, match=r"\w"):
        unpack_tar(archive, tmp_path / "own")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("name: of a model\n" * 100)
    with pytest.raises(ArchiveError, match=r"\w"):
        unpack_tar(tmp_path / "text", tmp_path / "own")


# -- what leads outside ---------------------------------------------------------------------------

_LINK, _HARD = tarfile.SYMTYPE, tarfile.LNKTYPE
_OUTSIDE: dict[str, tuple[list[tarfile.TarInfo], str]] = {
    "climbs": ([member("../outside")], "is no path: it has a part '..'"),
    "absolute": ([member("/outside")], "is no path"),
    "controls": ([member("a\nb")], "is no path"),
    "link up": ([member("a", _LINK, "../x")], "a link that leads outside, to '../x'"),
    "link far up": ([member("a/b", _LINK, "../../x")], "a link that leads outside"),
    "absolute link": ([member("a", _LINK, "/etc")], "a link that leads outside, to '/etc'"),
    "link by links": (
        [member("d", tarfile.DIRTYPE), member("d/a", _LINK, ".."), member("b", _LINK, "d/a/..")],
        "a link that leads outside",
    ),
    "below a link": ([member("a", _LINK, "b"), member("a/x")], "below one"),
    "in place of a link": ([member("a", _LINK, "b"), member("a")], "in place of another"),
    "below a file": ([member("a"), member("a/x")], "below one"),
    "hard link": ([member("a", _HARD, "../x")], "a link to what is no file before it"),
    "hard link to a link": (
        [member("a", _LINK, "b"), member("c", _HARD, "a")],
        "a link to what is no file before it",
    ),
    "device": ([member("a", tarfile.CHRTYPE)], "a device or a pipe"),
    "pipe": ([member("a", tarfile.FIFOTYPE)], "a device or a pipe"),
}


@pytest.mark.parametrize("what", _OUTSIDE)
def test_archive_does_not_reach_out_of_its_directory(tmp_path: Path, what: str) -> None:
    members, said = _OUTSIDE[what]
    archive = made_of(tmp_path, *members)
    with pytest.raises(ArchiveError, match=re.escape(said)):
        unpack_tar(archive, tmp_path / "own")
    assert {path.name for path in tmp_path.iterdir()} <= {"evil.tar", "own"}


def test_links_may_lead_outside_where_that_is_said(tmp_path: Path) -> None:
    archive = made_of(tmp_path, member("bin/python", _LINK, "/usr/bin/python3"))
    unpack_tar(archive, tmp_path / "own", may_leave=re.compile("bin/python"))
    assert os.readlink(tmp_path / "own" / "bin" / "python") == "/usr/bin/python3"
    both = made_of(tmp_path, member("bin/python", _LINK, "/tmp/x"), member("bin/python"))
    with pytest.raises(ArchiveError, match="in place of another"):
        unpack_tar(both, tmp_path / "other", may_leave=re.compile("bin/python"))


_KINDS = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, _LINK, _HARD])
_PATHS = st.lists(st.sampled_from(["a", "b", ".", "..", ""]), min_size=1, max_size=4).map("/".join)


@given(st.lists(st.builds(member, _PATHS, _KINDS, _PATHS), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_is_written_outside_whatever_the_archive_holds(
    tmp_path_factory: pytest.TempPathFactory, members: list[tarfile.TarInfo]
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    try:
        unpack_tar(made_of(folder, *members), own := folder / "own")
    except ArchiveError:
        pass
    else:
        inside = [Path(os.path.realpath(path)) for path in own.rglob("*")]
        assert all(path.is_relative_to(os.path.realpath(own)) for path in inside)
    assert {path.name for path in folder.iterdir()} <= {"evil.tar", "own"}


# -- limits ---------------------------------------------------------------------------------------


def sized(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    return info


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    archive = made_of(tmp_path, sized("a", 1000), sized("zeros", 100 << 20), mode="w:gz")
    with pytest.raises(ArchiveError, match=r"more than 100 times its \d+,\d+ bytes"):
        unpack_tar(archive, tmp_path / "own")
    assert not (tmp_path / "own" / "zeros").exists()


def test_a_bomb_behind_the_end_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "own.tar.gz"
    plain = made_of(tmp_path, sized("a", 10)).read_bytes()
    with gzip.open(archive, "wb") as out:
        out.write(plain)
        for _ in range(100):
            out.write(bytes(1 << 20))
    with pytest.raises(ArchiveError, match="more than 100 times"):
        unpack_tar(archive, tmp_path / "own")


def test_bytes_and_members_have_limits(tmp_path: Path) -> None:
    archive = made_of(tmp_path, *(sized(f"f{n}", 1000) for n in range(10)))
    with pytest.raises(ArchiveError, match="unpacks to more than 5,000 bytes"):
        unpack_tar(archive, tmp_path / "a", ArchiveLimits(total=5000))
    with pytest.raises(ArchiveError, match="more than 9 members"):
        unpack_tar(archive, tmp_path / "b", ArchiveLimits(members=9))
    unpack_tar(archive, tmp_path / "c", ArchiveLimits(total=50_000, members=10))
    assert len(list((tmp_path / "c").iterdir())) == 10


@pytest.mark.parametrize("size", [2 << 20, -(2 << 20)])
@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_header_is_not_read_into_memory_whatever_it_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: bytes, size: int
) -> None:
    """Neither at once, nor piece by piece, as newer Pythons do; less than nothing means all."""
    for reader in ("_proc_gnulong", "_proc_pax"):
        monkeypatch.setattr(tarfile.TarInfo, reader, lambda *_: pytest.fail("it is read"))
    archive = tmp_path / "evil.tar"
    header = member("long", kind)
    header.size = size
    archive.write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(3 << 20))
    with pytest.raises(ArchiveError, match=f"a header of {size:,} bytes"):
        unpack_tar(archive, tmp_path / "own")


def test_headers_of_headers_are_refused(tmp_path: Path) -> None:
    header = member("long", tarfile.GNUTYPE_LONGNAME)
    header.size = 512
    archive = tmp_path / "evil.tar"
    archive.write_bytes((header.tobuf(tarfile.GNU_FORMAT) + b"x" * 512) * 3000)
    with pytest.raises(ArchiveError, match=r"\w"):
        unpack_tar(archive, tmp_path / "own")
