"""Standard output and standard error, which somebody may have stopped to read."""

from __future__ import annotations

import os
from typing import TextIO


def say(line: str, stream: TextIO) -> None:
    """Write a line at once; what cannot be written ends nobody's work."""
    try:
        print(line, file=stream, flush=True)
    except OSError:
        abandon(stream)


def abandon(stream: TextIO) -> None:
    """Let go of what was not written, and of all that will be."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)
