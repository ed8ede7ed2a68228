"""The pulse: a socket beside the link for liveness and readiness probes of a model process.

A thread of the process's own answers, and needs Python's lock for a moment only, so that an answer
waits for no execution; a process that is stopped, or whose code holds the lock, gives none.
Messages are single bytes.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum, unique


@unique
class Probe(IntEnum):
    """Probes that the server sends."""

    LIVENESS = 1
    READINESS = 2


@unique
class Answer(IntEnum):
    """Answers of the model process."""

    ALIVE = 1
    READY = 2
    NOT_READY = 3


class Pulse:
    """The model process's end; its thread answers liveness probes from construction on.

    `on_readiness` is called in that thread for a readiness probe. It must not block, and be
    followed by `answer`, from any thread.
    """

    def __init__(self, descriptor: int, on_readiness: Callable[[], object]) -> None:
        os.set_inheritable(descriptor, False)
        self._connection = socket.socket(fileno=descriptor)
        self._on_readiness = on_readiness
        threading.Thread(target=self._serve, name="pulse", daemon=True).start()

    def answer(self, *, ready: bool) -> None:
        """Answer a readiness probe."""
        self._send(Answer.READY if ready else Answer.NOT_READY)

    def _serve(self) -> None:
        # The server or the model has closed the socket; or the event loop to notify is closed.
        with self._connection, suppress(OSError, RuntimeError):
            while probes := self._connection.recv(64):
                for probe in probes:
                    if probe == Probe.LIVENESS:
                        self._send(Answer.ALIVE)
                    else:
                        self._on_readiness()

    def _send(self, answer: Answer) -> None:
        with suppress(OSError):
            self._connection.send(bytes((answer,)))
