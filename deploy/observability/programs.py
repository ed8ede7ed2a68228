"""The programs of the stack, each a process of its own that ends with this one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.system.process_control import die_with_parent

_READY_SECONDS = 120.0
_END_SECONDS = 45.0  # a server gives its requests 30
_LAST_LINES = 12


class StackError(Exception):
    """A program does not run; the message has the last lines that it printed."""


@dataclass(frozen=True, slots=True)
class Started:
    """A program that runs, and the file with what it prints."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait_ready(self, url: str, seconds: float = _READY_SECONDS) -> None:
        """Return when a GET of this URL is answered with 200."""
        end = time.monotonic() + seconds
        while not answers(url):
            if self.process.poll() is not None:
                raise StackError(f"{self.name} ended:\n{self.last_lines()}")
            if time.monotonic() > end:
                raise StackError(f"{self.name} is not ready:\n{self.last_lines()}")
            time.sleep(0.1)

    def last_lines(self) -> str:
        """The last lines that it printed."""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:])


@contextmanager
def program(
    name: str,
    command: Sequence[str | Path],
    folder: Path,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Started]:
    """Start a program that logs into the folder; at the end it gets SIGTERM.

    It has a session of its own, so that Ctrl-C in a terminal is for this process, which decides
    in which order programs end. Killed, this process takes it along.
    """
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        yield Started(name, process, log)
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    """Whether a GET of it is answered with 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def port(variable: str, usual: int = 0) -> int:
    """The port that the environment names, else the usual one, else any that is free."""
    if named := os.environ.get(variable):
        return int(named)
    for wanted in (usual, 0):
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", wanted))
            return int(listener.getsockname()[1])
    raise StackError("there is no free port")
