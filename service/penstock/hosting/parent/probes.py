"""`Probes`: the server's end of the pulse, for liveness and readiness of a model process.

Regions of memory are offered by it, too.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from penstock.hosting.link.pulse import Answer, Probe

_PATIENCE = 5.0
"""Seconds after which a process that does not answer is not ready, as in Triton."""


class Probes:
    """Liveness and readiness probes of a model process, one of each kind at a time.

    `on_sign` is called for every answer. Takes ownership of the socket.
    """

    def __init__(self, connection: socket.socket, on_sign: Callable[[], None]) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._on_sign = on_sign
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection.fileno(), self._read)
        self._liveness_due = False
        self._readiness: asyncio.Future[bool] | None = None
        self._closed = False

    def probe_liveness(self) -> None:
        """Send a liveness probe, unless one is unanswered."""
        if not self._liveness_due:
            self._liveness_due = self._send(Probe.LIVENESS)

    async def ready(self) -> bool:
        """Whether the model reports that it is ready; false after 5 seconds without an answer.

        Callers share an answer: while one is due, no other probe is sent.
        """
        if self._closed:
            return False
        if self._readiness is None:
            if not self._send(Probe.READINESS):
                return False
            self._readiness = self._loop.create_future()
        readiness = self._readiness
        await asyncio.wait([readiness], timeout=_PATIENCE)
        return readiness.done() and readiness.result()

    def offer(self, offer: bytes, descriptor: int) -> bool:
        """Send the offer of a region with its file; whether the socket has taken it."""
        if self._closed:
            return False
        try:
            socket.send_fds(self._connection, [bytes((Probe.REGION,)) + offer], [descriptor])
        except OSError:  # it has ended, or does not read
            return False
        return True

    def close(self) -> None:
        """Close the socket, as the process has ended or will be: who waits gets "not ready"."""
        if self._closed:
            return
        self._closed = True
        self._settle(ready=False)
        self._loop.remove_reader(self._connection.fileno())
        self._connection.close()

    def _send(self, probe: Probe) -> bool:
        """Whether the socket has taken a probe, so that there will be an answer."""
        try:
            self._connection.send(bytes((probe,)))
        except OSError:  # it has ended, which the link reports, or does not read
            return False
        return True

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
            if answer == Answer.ALIVE:
                self._liveness_due = False
            else:
                self._settle(ready=answer == Answer.READY)
            self._on_sign()

    def _settle(self, *, ready: bool) -> None:
        due, self._readiness = self._readiness, None
        if due is not None and not due.done():
            due.set_result(ready)
