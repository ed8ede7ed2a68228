"""Unpacks tar archives that may be hostile: under limits, and with nothing outside of a folder."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from posixpath import dirname, isabs, join, normpath
from typing import IO, Any

from penstock.core.file_names import folders_above
from penstock.system.archives import LIMITS, ArchiveError, ArchiveLimits, check_name

_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, RecursionError)
"""Exceptions that a damaged archive raises, compressed or not: headers of headers recurse."""

_LONGEST_READ = 1 << 20
"""Bytes that are read at once, and those of a header, which is kept in memory."""

_READ_WHOLE = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.XHDTYPE,
)
"""Members that are headers of others, and as long as they say."""

_BLOCK = 512
_READERS: tuple[tuple[bytes, Callable[[Path], Any]], ...] = (
    (b"\x1f\x8b", gzip.GzipFile),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\0", lzma.LZMAFile),
    (b"]\0\0", lzma.LZMAFile),
)
"""How files are read, by how they begin."""


def unpack_tar(
    archive: Path,
    target: Path,
    limits: ArchiveLimits = LIMITS,
    may_leave: re.Pattern[str] | None = None,
) -> None:
    """Unpack an archive, compressed or not, below `target`; raises `ArchiveError`.

    Links lead to what lies below `target`, but symbolic ones whose whole name matches `may_leave`.
    After an error, what has been unpacked is for the caller to remove.
    """
    members = _Members(limits, archive.stat().st_size, may_leave)
    try:
        with closing(_opened(archive)) as plain:
            counted = _Counted(plain, members.check_total)
            with _open(counted) as contents:
                contents.extractall(target, members=members.checked(contents), filter="tar")
            counted.read_to_end()
    except _DAMAGE as error:
        raise ArchiveError(str(error)) from error
    members.check_links(target)


def tar_texts(
    archive: Path, wanted: re.Pattern[str], longest: int, limits: ArchiveLimits = LIMITS
) -> Iterator[tuple[str, bytes]]:
    """The files of an archive whose names match, `longest` bytes of each; raises `ArchiveError`.

    What lies before them is read and counted, and nothing is unpacked.
    """
    members = _Members(limits, archive.stat().st_size, None)
    try:
        with closing(_opened(archive)) as plain:
            counted = _Counted(plain, members.check_total)
            with _open(counted) as contents:
                for count, member in enumerate(contents, 1):
                    limits.check_members(count)
                    if member.isfile() and wanted.fullmatch(member.name):
                        file = contents.extractfile(member)
                        assert file is not None
                        yield member.name, file.read(min(member.size, longest))
    except _DAMAGE as error:
        raise ArchiveError(str(error)) from error


def _opened(archive: Path) -> IO[bytes]:
    with archive.open("rb") as file:
        begin = file.read(_BLOCK)
    for magic, reader in _READERS:
        if begin.startswith(magic):
            plain: IO[bytes] = reader(archive)
            return plain
    return archive.open("rb")


def _open(plain: _Counted) -> tarfile.TarFile:
    """The archive, its members not looked at yet."""
    reading: Any = plain  # it has what `tarfile` asks of a file that is read forward
    return tarfile.open(fileobj=reading, mode="r:", tarinfo=_Header)


class _Header(tarfile.TarInfo):
    """A header that is refused, before the rest of it is read, where it claims to be too long."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """The hook of `tarfile` that reads what belongs to this header."""
        if self.type in _READ_WHOLE:
            _check_read(self.size)  # before a newer Python reads it piece by piece
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member


def _check_read(size: int) -> None:
    """Refuse what only a header claims to have; less than none would be all there is."""
    if not 0 <= size <= _LONGEST_READ:
        raise ArchiveError(f"it has a header of {size:,} bytes")


class _Counted:
    """What is unpacked, read forward only; `check` is told how many bytes have been."""

    def __init__(self, plain: IO[bytes], check: Callable[[int], None]) -> None:
        self._plain, self._check, self._at = plain, check, 0

    def read(self, size: int) -> bytes:
        _check_read(size)
        data = self._plain.read(size)
        self._at += len(data)
        self._check(self._at)
        return data

    def tell(self) -> int:
        return self._at

    def seek(self, to: int) -> None:
        while self._at < to and self.read(min(to - self._at, _LONGEST_READ)):
            pass

    def read_to_end(self) -> None:
        """Verify the checksums, which are at the end: a damaged member looks like the end."""
        while self.read(_LONGEST_READ):
            pass


class _Members:
    """What has been seen of an archive of `packed` bytes, and what may not come any more."""

    def __init__(
        self, limits: ArchiveLimits, packed: int, may_leave: re.Pattern[str] | None
    ) -> None:
        self._limits, self._packed, self._may_leave = limits, packed, may_leave
        self._files = set[str]()
        self._links = set[str]()

    def check_total(self, unpacked: int) -> None:
        self._limits.check_total(unpacked, self._packed)

    def checked(self, contents: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
        """The members, each checked before it is unpacked."""
        total = 0
        for count, member in enumerate(contents, 1):
            self._limits.check_members(count)
            total += member.size if member.isfile() else 0
            self.check_total(total)
            name = member.name.removeprefix("./")
            if name != "." or not member.isdir():
                self._check(name, member)
            yield member

    def _check(self, name: str, member: tarfile.TarInfo) -> None:
        check_name(name)
        if name in self._links or any(
            above in self._links or above in self._files for above in folders_above(name)
        ):
            raise ArchiveError(f"its member '{name}' lies in place of another, or below one")
        if member.issym():
            self._check_link(name, member.linkname)
            self._links.add(name)
        elif member.islnk():
            if normpath(member.linkname) not in self._files:
                raise ArchiveError(f"its member '{name}' is a link to what is no file before it")
            self._files.add(name)
        elif member.isfile():
            self._files.add(name)
        elif not member.isdir():
            raise ArchiveError(f"its member '{name}' is a device or a pipe")

    def _check_link(self, name: str, to: str) -> None:
        if self._leaves_rightly(name):
            return
        if isabs(to) or normpath(join(dirname(name), to)).split("/")[0] == "..":
            raise ArchiveError(f"its member '{name}' is a link that leads outside, to '{to}'")

    def check_links(self, target: Path) -> None:
        """Refuse links that lead outside by way of other links."""
        root = os.path.realpath(target)
        for name in self._links:
            to = os.path.realpath(join(root, name))
            if not self._leaves_rightly(name) and os.path.commonpath((root, to)) != root:
                raise ArchiveError(f"its member '{name}' is a link that leads outside, to '{to}'")

    def _leaves_rightly(self, name: str) -> bool:
        return self._may_leave is not None and self._may_leave.fullmatch(name) is not None
