"""`file_state`: what tells one state of a file from another, for whoever follows changes of it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

FileState = tuple[int, int, int, int, int] | None
"""`None` where there is no file."""


def file_state(path: Path) -> FileState:
    """The state of the file that a path names at the moment, through all symbolic links.

    Its rights are a part of it: who could not read it may do so now.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def check_file(path: Path) -> None:
    """Raises `OSError` where there is no file, or something else.

    A pipe that takes the place of a file would have its reader wait, for ever where nobody writes.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is not a file", str(path))
