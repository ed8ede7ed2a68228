"""The pulse: a socket beside the link that a model process answers whatever else it does.

The server asks for a sign of life, or whether the model is ready. A thread of the process's own
reads it, and needs Python's lock for a moment only, so that an answer waits for no execution; a
process that is stopped, or whose code holds the lock, gives none. Messages are single bytes.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum, unique


@unique
class Ask(IntEnum):
    """What the server asks."""

    SIGN = 1
    READINESS = 2


@unique
class Answer(IntEnum):
    """What the model process answers."""

    SIGN = 1
    READY = 2
    NOT_READY = 3


class Pulse:
    """The model process's end; gives signs by itself from its making on.

    `on_readiness` is called in its thread when the server asks whether the model is ready. It must
    not block, and be followed by `answer`, from any thread.
    """

    def __init__(self, descriptor: int, on_readiness: Callable[[], object]) -> None:
        os.set_inheritable(descriptor, False)
        self._connection = socket.socket(fileno=descriptor)
        self._on_readiness = on_readiness
        threading.Thread(target=self._serve, name="pulse", daemon=True).start()

    def answer(self, *, ready: bool) -> None:
        """Tell the server, which has asked, whether the model is ready."""
        self._send(Answer.READY if ready else Answer.NOT_READY)

    def _serve(self) -> None:
        # The server or the model has closed the socket; or the event loop that is told is closed.
        with self._connection, suppress(OSError, RuntimeError):
            while asked := self._connection.recv(64):
                for ask in asked:
                    if ask == Ask.SIGN:
                        self._send(Answer.SIGN)
                    else:
                        self._on_readiness()

    def _send(self, answer: Answer) -> None:
        with suppress(OSError):
            self._connection.send(bytes((answer,)))
