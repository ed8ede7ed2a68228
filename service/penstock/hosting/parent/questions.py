"""`Questions`: the server's end of the pulse, where it asks a model process how it is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from penstock.hosting.link.pulse import Answer, Ask

_PATIENCE = 5.0
"""Seconds after which a process that does not answer is not ready, as in Triton."""


class Questions:
    """Asks a process for signs of life, and whether its model is ready; each once at a time.

    `on_sign` is called for every answer. The socket belongs to this from its making on.
    """

    def __init__(self, connection: socket.socket, on_sign: Callable[[], None]) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._on_sign = on_sign
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection.fileno(), self._read)
        self._sign_is_due = False
        self._readiness: asyncio.Future[bool] | None = None
        self._closed = False

    def ask_sign(self) -> None:
        """Ask for a sign, unless one is due already."""
        if not self._sign_is_due:
            self._sign_is_due = True
            self._send(Ask.SIGN)

    async def ready(self) -> bool:
        """Whether the model says that it is ready; not after 5 seconds without an answer.

        Callers share an answer: while one is due, the model is not asked again.
        """
        if self._closed:
            return False
        if self._readiness is None:
            self._readiness = self._loop.create_future()
            self._send(Ask.READINESS)
        try:
            return await asyncio.wait_for(asyncio.shield(self._readiness), _PATIENCE)
        except TimeoutError:
            return False

    def close(self) -> None:
        """The process has ended, or will be: what is due is answered by no."""
        if self._closed:
            return
        self._closed = True
        self._settle(ready=False)
        self._loop.remove_reader(self._connection.fileno())
        self._connection.close()

    def _send(self, ask: Ask) -> None:
        with suppress(OSError):  # it has ended, of which the link tells
            self._connection.send(bytes((ask,)))

    def _read(self) -> None:
        try:
            answers = self._connection.recv(64)
        except BlockingIOError:
            return
        except OSError:
            answers = b""
        if not answers:
            self._loop.remove_reader(self._connection.fileno())
        for answer in answers:
            if answer == Answer.SIGN:
                self._sign_is_due = False
            else:
                self._settle(ready=answer == Answer.READY)
            self._on_sign()

    def _settle(self, *, ready: bool) -> None:
        due, self._readiness = self._readiness, None
        if due is not None and not due.done():
            due.set_result(ready)
