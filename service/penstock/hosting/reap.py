"""The process behind `Reaper`: reads groups until its input ends, then kills what is left.

A group comes as `+NUMBER` and goes as `-NUMBER`, as an argument or a line. Run by path; it
imports as little as possible, since it lives as long as the server.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def _reap(lines: list[str]) -> None:
    groups: set[int] = set()
    for line in lines:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _reap([*sys.argv[1:], *sys.stdin.read().splitlines()])
