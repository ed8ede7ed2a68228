"""Ends what the server leaves behind when it dies without a word.

One small process holds the end of a pipe. It is told the process group of every model process;
when the pipe closes, because the server ended in whatever way, it kills the groups that are
left, with the grandchildren that an engine may have started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress


class Reaper:
    """The server's side: names the groups that must not outlive it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def watch(self, group: int) -> None:
        """Kill `group` if the server dies."""
        self._groups.add(group)
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """The group has ended; its number may be used again by others."""
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Let the helper process end; no group is left."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.wait()

    def _tell(self, line: str) -> None:
        try:
            self._write(line)
        except BrokenPipeError:  # somebody killed it: a new one learns all groups
            self.close()
            for group in self._groups:
                self._write(f"+{group}\n")

    def _write(self, line: str) -> None:
        if self._process is None:
            self._process = _start()
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", __file__]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


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
    _reap(sys.stdin.read().splitlines())
