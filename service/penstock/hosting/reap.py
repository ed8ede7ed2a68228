"""The process behind `Reaper`: reads groups until its input ends, then kills what is left.

A group comes as `+NUMBER` and goes as `-NUMBER`, as an argument or a line; a folder, which is
removed with all that it holds, as `+PATH`. Run by path; it imports as little as possible, since
it lives as long as the server.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def _reap(lines: list[str]) -> None:
    left: set[str] = set()
    for line in lines:
        (left.add if line[0] == "+" else left.discard)(line[1:])
    folders = {name for name in left if name.startswith("/")}
    for group in left - folders:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(int(group), signal.SIGKILL)
    if folders:
        from shutil import rmtree

        for folder in folders:
            rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _reap([*sys.argv[1:], *sys.stdin.read().splitlines()])
