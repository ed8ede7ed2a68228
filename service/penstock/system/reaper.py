"""The reaper: kills the model processes of a server that dies without a clean shutdown.

One small helper process, `reap`, reads a pipe on which it gets the process group of every model
process. When the pipe closes, because the server ended in whatever way, it kills the groups that
are left, with the grandchildren that an engine may have started, and removes the server's folder.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from penstock.system import reap
from penstock.system.model_variables import passed_on

logger = logging.getLogger(__name__)

_END_SECONDS = 2.0
"""Seconds that the helper has for its work, if it is not stuck."""

_AGAIN_SECONDS = 1.0
"""Seconds until another try to start one."""


class Reaper:
    """The server's side: registers the process groups that must not outlive it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()
        self._folder: Path | None = None
        self._mark = secrets.token_hex(8) + "."
        self._children = 0
        self._again: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the helper, while there is one."""
        return self._process.pid if self._process else None

    @property
    def groups(self) -> frozenset[int]:
        """The groups that would be killed."""
        return frozenset(self._groups)

    def new_mark(self) -> str:
        """A value for `reap.VARIABLE` in a child's environment; a prefix of no other mark."""
        self._children += 1
        return f"{self._mark}{self._children}."

    def watch(self, group: int) -> None:
        """Kill `group` if the server dies."""
        self._groups.add(group)
        if self._process is None:
            self._start()
        else:
            self._write(f"+{group}\n")

    def forget(self, group: int) -> None:
        """Unregister a group that has ended; its number may be used again."""
        self._groups.discard(group)
        if self._process is not None:
            self._write(f"-{group}\n")

    def folder(self) -> Path:
        """A folder for files that must not outlive the server."""
        if self._folder is None:
            name = f"penstock-{os.getpid()}-{secrets.token_hex(4)}"
            self._folder = Path(tempfile.gettempdir(), name)
            if self._process is not None:
                self._write(f"+{self._folder}\n")
        if self._process is None:
            self._start()
        self._folder.mkdir(mode=0o700, exist_ok=True)  # once the helper knows of it
        return self._folder

    def close(self) -> None:
        """Kill the groups that are left, remove the folder, and end."""
        process, self._process = self._process, None
        if self._again is not None:
            self._again.cancel()
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        self._loop.remove_reader(process.stdout.fileno())
        process.stdin.close()
        process.stdout.close()
        process.send_signal(signal.SIGCONT)  # one that was stopped would never end
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            logger.warning("the process that ends model processes is stuck, and was killed")
            process.kill()
            process.wait()
            reap.reap(self._known())

    def _known(self) -> list[str]:
        """The groups to kill and the folder to remove, in lines as the helper reads them."""
        known = [f"={self._mark}", *(f"+{group}" for group in self._groups)]
        if self._folder is not None:
            known.append(f"+{self._folder}")
        return known

    def _start(self) -> None:
        # What it must know from its first moment is on its command line.
        command = [sys.executable, "-I", "-S", reap.__file__, *self._known()]
        pipe = subprocess.PIPE
        # It does not hide, as the server does: models can read what it has in its environment.
        self._process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=pipe,
            stdout=pipe,
            env=passed_on(os.environ),
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._loop = asyncio.get_running_loop()
        # It never writes anything: the pipe becomes readable when it ends.
        self._loop.add_reader(self._process.stdout.fileno(), self._replace)

    def _replace(self) -> None:
        """The helper was killed: start another, which gets all groups."""
        logger.warning("the process that ends model processes was killed; starting another")
        self.close()
        self._start_again()

    def _start_again(self) -> None:
        """Start a helper, and try later if there are no descriptors or processes for it."""
        if self._process is not None:
            return
        try:
            self._start()
        except OSError as error:
            logger.error("no process that ends model processes can be started: %s", error)
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(_AGAIN_SECONDS, self._start_again)

    def _write(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode())
        except BrokenPipeError:
            self._replace()
