"""Archives that may be hostile: limits of what they unpack to, and names in them that are paths."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from penstock.core.file_names import wrong_name

_END, _END_64, _LOCATOR_64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_END_BYTES, _END_64_BYTES, _LOCATOR_BYTES = 22, 56, 20
_COMMENT = 1 << 16
"""Bytes that may stand behind the end of a zip archive's directory."""

DAMAGES = (RuntimeError, ValueError, OverflowError, EOFError, struct.error, zlib.error)
"""What `zipfile` raises of a damaged archive, beside its own error; of an encrypted one, too."""

_SMALL = 64 << 20
"""Bytes that any archive may unpack to: what is small may be as dense as it likes."""


class ArchiveError(ValueError):
    """The archive is damaged, or holds what it must not; the text goes on a sentence about it."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What an archive may unpack to: bytes, members, and bytes for each of its own.

    `directory` are bytes of the directory of a zip archive, which is read whole.
    """

    total: int = 64 << 30
    members: int = 1_000_000
    ratio: int = 100
    directory: int = 64 << 20

    def check_directory(self, size: int) -> None:
        """Refuse a zip archive's directory of so many bytes; raises `ArchiveError`."""
        if size > self.directory:
            raise ArchiveError(f"it has a directory of {size} bytes")

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


def directory_bytes(path: Path) -> int | None:
    """Bytes of a zip archive's directory, the most that any end of it says; `None` without one.

    A record of ZIP64 counts wherever there is a locator of one: `zipfile` goes by it whatever the
    record of 32 bits says, and by where it should be or by where the locator says, as Python's
    version has it. Raises `OSError`.
    """
    with path.open("rb") as file:
        begin = max(0, file.seek(0, 2) - _END_BYTES - _COMMENT - _LOCATOR_BYTES - _END_64_BYTES)
        file.seek(begin)
        tail = file.read()
        sizes, at = [], len(tail)
        while (at := tail.rfind(_END, 0, at)) >= 0:
            if len(tail) - at >= _END_BYTES:
                sizes.append(_directory(file, tail, at))
        return max(sizes, default=None)


def _directory(file: BinaryIO, tail: bytes, at: int) -> int:
    """The bytes that the end says which is at this place of an archive's tail."""
    (size,) = struct.unpack_from("<I", tail, at + 12)
    before = max(0, at - _LOCATOR_BYTES)
    locator = tail[before:at]
    if len(locator) < _LOCATOR_BYTES or locator[:4] != _LOCATOR_64:
        return int(size)
    found = [] if size == 0xFFFF_FFFF else [size]
    (place,) = struct.unpack_from("<Q", locator, 8)
    begin = max(0, before - _END_64_BYTES)
    records = [tail[begin:before]]
    if place < 1 << 62:
        file.seek(place)
        records.append(file.read(_END_64_BYTES))
    found += [
        struct.unpack_from("<Q", record, 40)[0]
        for record in records
        if record[:4] == _END_64 and len(record) == _END_64_BYTES
    ]
    return int(max(found, default=size))


def zip_members(path: Path, limits: ArchiveLimits = LIMITS) -> Sequence[str]:
    """The names in a zip archive, none for another file; raises `ArchiveError` beyond the limits.

    What is unpacked later holds to them if whoever does it believes the archive's own directory.
    """
    import zipfile  # which backends that open none need not import

    try:
        # Not `is_zipfile`: by Python's version it calls a damaged archive no archive at all.
        if (directory := directory_bytes(path)) is None:
            return ()
        limits.check_directory(directory)
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except ArchiveError:
        raise
    except (zipfile.BadZipFile, OSError, *DAMAGES) as error:
        raise ArchiveError(str(error)) from error
    limits.check_members(len(members))
    limits.check_total(sum(member.file_size for member in members), path.stat().st_size)
    for member in members:
        check_name(member.filename.removesuffix("/"))
    return [member.filename for member in members]
