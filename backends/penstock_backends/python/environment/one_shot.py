"""Asks a process of its own one question, so that whatever happens there happens to nobody else."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

from penstock.core.errors import InternalError, error_from_code
from penstock.hosting.worker import bootstrap
from penstock.system.parent import die_with_parent
from penstock.system.reap import kill_group
from penstock_backends.python.environment.guard import Guard, guarding

logger = logging.getLogger(__name__)

_END_SECONDS = 10.0
"""What a process has to end in once it has said all."""

_LINE_LIMIT = 64 << 20
"""Bytes of the longest answer."""


async def ask(python: str, target: str, question: Any, what: str) -> Any:
    """The answer of the function `target` (`module:function`), which runs under `python`.

    The process is gone when this returns or is cancelled, with all that it has started. Raises
    the error that it tells, or one that says how it ended; `what` names the process there.
    """
    async with guarding() as guard:
        answer, status = await _asked(python, target, question, guard)
    if answer is None:
        raise InternalError(f"{what} {_end_of(status)}")
    kind, value = answer
    if kind == "error":
        raise error_from_code(*value)
    return value


async def _asked(
    python: str, target: str, question: Any, guard: Guard
) -> tuple[tuple[str, Any] | None, int]:
    """What the process answers, if it does, and its exit status."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = await _spawn(python, target, theirs.fileno(), guard)
    reader, writer = await asyncio.open_connection(sock=ours, limit=_LINE_LIMIT)
    answer: tuple[str, Any] | None = None
    try:
        with suppress(ConnectionError):
            writer.write(json.dumps(question).encode())
            writer.write_eof()
            answer = await _answer(reader)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _END_SECONDS)
    finally:
        writer.close()
        kill_group(process.pid)
        await process.wait()
        guard.forget(process.pid)
    return answer, process.returncode or 0


class Asked:
    """The asked side of the question: what it is, and a way to answer."""

    def __init__(self, descriptor: int, parent: int) -> None:
        die_with_parent()
        if os.getppid() != parent:
            raise SystemExit  # the server has ended already
        self._connection = socket.socket(fileno=descriptor)
        self._connection.set_inheritable(False)
        with self._connection.makefile("rb") as questions:
            self.question = json.load(questions)

    def log(self, text: str) -> None:
        """Have the server write a line to its log."""
        self._say("log", text)

    def answer(self, value: Any) -> None:
        """Give the answer."""
        self._say("answer", value)

    def refuse(self, code: str, message: str) -> None:
        """Answer with an error."""
        self._say("error", (code, message))

    def _say(self, kind: str, value: Any) -> None:
        self._connection.sendall(json.dumps((kind, value)).encode() + b"\n")


async def _answer(reader: asyncio.StreamReader) -> tuple[str, Any] | None:
    """What the process answers, `None` when it ends before; what it tells is logged."""
    async for line in reader:
        kind, value = json.loads(line)
        if kind != "log":
            return kind, value
        logger.info("%s", value)
    return None


async def _spawn(
    python: str, target: str, descriptor: int, guard: Guard
) -> asyncio.subprocess.Process:
    packages = _package("penstock"), _package("penstock_backends")
    process = await asyncio.create_subprocess_exec(
        python,
        "-P",
        bootstrap.__file__,
        target,
        *map(str, (descriptor, os.getpid(), -1)),
        *packages,
        stdin=asyncio.subprocess.DEVNULL,
        env={**os.environ, **guard.environment},
        pass_fds=(descriptor,),
        start_new_session=True,
    )
    guard.watch(process.pid)
    return process


def _end_of(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    named = {number.value: f" ({number.name})" for number in signal.Signals}
    return f"was killed by signal {-status}{named.get(-status, '')}"


def _package(name: str) -> str:
    origin = sys.modules[name].__file__
    assert origin is not None
    return os.path.dirname(origin)
