"""Private temporary folders of model processes, removed with them, or with the server."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from penstock.core.backend import SHARED_TMPDIR
from penstock.system.reaper import Reaper

_LONGEST = 64
"""Bytes of a path that leave room for the names of sockets in it, which end at 107."""


def private_tmp(reaper: Reaper) -> Path | None:
    """A new folder for one process; `None` where it would have no room for a socket's name."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="", dir=reaper.folder()))
    except OSError:  # nothing is writable, and nothing may need to be
        return None
    if len(os.fsencode(folder)) > _LONGEST:
        folder.rmdir()
        return None
    return folder


def pointing_to(folder: Path) -> dict[str, str]:
    """The environment that makes a process use the folder."""
    return {"TMPDIR": str(folder), SHARED_TMPDIR: tempfile.gettempdir()}
