"""Archives that may be hostile: limits of what they unpack to, and names in them that are paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.core.file_names import wrong_name

_SMALL = 64 << 20
"""Bytes that any archive may unpack to: what is small may be as dense as it likes."""


class ArchiveError(ValueError):
    """The archive is damaged, or holds what it must not; the text goes on a sentence about it."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What an archive may unpack to: bytes, members, and bytes for each of its own."""

    total: int = 64 << 30
    members: int = 1_000_000
    ratio: int = 100

    def check_members(self, count: int) -> None:
        """Refuse so many members; raises `ArchiveError`."""
        if count > self.members:
            raise ArchiveError(f"it has more than {self.members:,} members")

    def check_total(self, unpacked: int, packed: int) -> None:
        """Refuse so many bytes from an archive of `packed`; raises `ArchiveError`."""
        if unpacked > self.total:
            raise ArchiveError(f"it unpacks to more than {self.total:,} bytes")
        if unpacked > max(_SMALL, packed * self.ratio):
            raise ArchiveError(f"it unpacks to more than {self.ratio} times its {packed:,} bytes")


LIMITS = ArchiveLimits()


def check_name(name: str) -> None:
    """Refuse the name of a member that is no path below a folder; raises `ArchiveError`."""
    if wrong := wrong_name(name):
        raise ArchiveError(f"its member {name[:300]!r} is no path: {wrong}")


def zip_members(path: Path, limits: ArchiveLimits = LIMITS) -> Sequence[str]:
    """The names in a zip archive, none for another file; raises `ArchiveError` beyond the limits.

    What is unpacked later holds to them if whoever does it believes the archive's own directory.
    """
    import zipfile  # which backends that open none need not import

    if not zipfile.is_zipfile(path):
        return ()
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError) as error:
        raise ArchiveError(str(error)) from error
    limits.check_members(len(members))
    limits.check_total(sum(member.file_size for member in members), path.stat().st_size)
    for member in members:
        check_name(member.filename.removesuffix("/"))
    return [member.filename for member in members]
