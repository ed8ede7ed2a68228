"""Private temporary folders of model processes, removed with them, or with the server."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

from penstock.core.backend import SHARED_TMPDIR
from penstock.system.reaper import Reaper

logger = logging.getLogger(__name__)

_LONGEST = 64
"""Bytes of a path that leave room for the names of sockets in it, which end at 107."""


def private_tmp(reaper: Reaper) -> Path | None:
    """A new folder for one process; `None`, with a warning, where there can be none.

    That is where nothing is writable, or where the path leaves no room for a socket's name.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="", dir=reaper.folder()))
    except OSError as error:  # the process may not need one
        logger.warning("a model process has no temporary folder of its own: %s", error)
        return None
    if len(os.fsencode(folder)) > _LONGEST:
        logger.warning(
            "a model process has no temporary folder of its own: the path '%s' is longer than %d"
            " bytes, name a shorter one by TMPDIR",
            folder,
            _LONGEST,
        )
        folder.rmdir()
        return None
    return folder


def pointing_to(folder: Path) -> dict[str, str]:
    """The environment that makes a process use the folder."""
    return {"TMPDIR": str(folder), SHARED_TMPDIR: tempfile.gettempdir()}
