"""One-shot processes: run one function in a process of its own, so that a crash harms no other."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from penstock.core.errors import InternalError, error_from_code
from penstock.hosting.worker import bootstrap
from penstock.system.model_variables import INSTALLING, passed_on
from penstock.system.printed import PrintedOutput
from penstock.system.process_control import die_with_parent
from penstock.system.reap import kill_group
from penstock_backends.python.environment.guard import Guard, open_guard

logger = logging.getLogger(__name__)

_END_SECONDS = 10.0
"""Seconds for the process to exit after its result."""

_LINE_LIMIT = 64 << 20
"""Bytes of the longest result."""


async def run_one_shot(
    python: str,
    target: str,
    argument: Any,
    what: str,
    origin: Mapping[str, str] | None = None,
) -> Any:
    """The result of the function `target` (`module:function`), which runs under `python`.

    Argument and result are JSON. When this returns or is cancelled, the process and all that it has
    started are gone. Raises the error that the function sends, or one with the exit status, where
    `what` names the process. What it prints goes to the server's output, with the names of `origin`
    if there are any.
    """
    printed = PrintedOutput(origin) if origin else None
    try:
        async with open_guard() as guard:
            message, status = await _run(python, target, argument, guard, printed)
    finally:
        if printed is not None:
            printed.close_ends()
    if printed is not None:
        await asyncio.to_thread(printed.wait)
    if message is None:
        raise InternalError(f"{what} {_exit_text(status)}")
    kind, value = message
    if kind == "error":
        raise error_from_code(*value)
    return value


async def _run(
    python: str, target: str, argument: Any, guard: Guard, printed: PrintedOutput | None
) -> tuple[tuple[str, Any] | None, int]:
    """The process's last message, if any, and its exit status."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = await _spawn(python, target, theirs.fileno(), guard, printed)
    reader, writer = await asyncio.open_connection(sock=ours, limit=_LINE_LIMIT)
    message: tuple[str, Any] | None = None
    try:
        with suppress(ConnectionError):
            writer.write(json.dumps(argument).encode())
            writer.write_eof()
            message = await _read_result(reader)
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
    finally:
        writer.close()
        kill_group(process.pid)
        await process.wait()
        guard.forget(process.pid)
    return message, process.returncode or 0


class OneShotCall:
    """The process's end of the call: the argument, and the connection for log, result or error."""

    def __init__(self, descriptor: int, parent: int) -> None:
        die_with_parent()
        if os.getppid() != parent:
            raise SystemExit  # the server has ended already
        self._connection = socket.socket(fileno=descriptor)
        self._connection.set_inheritable(False)
        with self._connection.makefile("rb") as stream:
            self.argument = json.load(stream)

    def log(self, text: str) -> None:
        """Write a line to the server's log."""
        self._send("log", text)

    def send_result(self, value: Any) -> None:
        """Send the result; it ends the call."""
        self._send("result", value)

    def send_error(self, code: str, message: str) -> None:
        """Send an error instead of a result."""
        self._send("error", (code, message))

    def _send(self, kind: str, value: Any) -> None:
        self._connection.sendall(json.dumps((kind, value)).encode() + b"\n")


async def _read_result(reader: asyncio.StreamReader) -> tuple[str, Any] | None:
    """The message with result or error, `None` at end of stream; log messages are logged."""
    async for line in reader:
        kind, value = json.loads(line)
        if kind != "log":
            return kind, value
        logger.info("%s", value)
    return None


async def _spawn(
    python: str, target: str, descriptor: int, guard: Guard, printed: PrintedOutput | None
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
        stdout=printed.stdout if printed else None,
        stderr=printed.stderr if printed else None,
        env={**passed_on(os.environ, INSTALLING), **guard.environment},
        pass_fds=(descriptor,),
        start_new_session=True,
    )
    guard.watch(process.pid)
    return process


def _exit_text(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    named = {number.value: f" ({number.name})" for number in signal.Signals}
    return f"was killed by signal {-status}{named.get(-status, '')}"


def _package(name: str) -> str:
    origin = sys.modules[name].__file__
    assert origin is not None
    return os.path.dirname(origin)
