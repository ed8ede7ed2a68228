"""Standard output and standard error, which somebody may have stopped to read."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def open_missing() -> None:
    """Open the standard files that this process was started without, to read and write nothing.

    What got their numbers instead would be written to by libraries, and by models.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


def write_line(line: str, stream: TextIO) -> None:
    """Write a line at once; what cannot be written ends nobody's work."""
    try:
        print(line, file=stream, flush=True)
    except OSError:
        discard(stream)


def discard(stream: TextIO) -> None:
    """Let go of what was not written, and of all that will be."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)
