"""The pulse: a socket beside the link for liveness and readiness probes of a model process.

A thread of the process's own answers, and needs Python's lock for a moment only, so that an answer
waits for no execution; a process that is stopped, or whose code holds the lock, gives none.
Probes and answers are single bytes. Offers of regions come with their files (SCM_RIGHTS), for which
the link itself would need another kind of reads. The socket keeps messages apart (SOCK_SEQPACKET).
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum, unique

from penstock.hosting.link.region_sharing import OFFER_SIZE, Offer, unpack_offer


@unique
class Probe(IntEnum):
    """What the server sends; REGION is followed by an offer, and comes with its file."""

    LIVENESS = 1
    READINESS = 2
    REGION = 3


_INT = struct.Struct("i")
_CLOSED_IN_CHILDREN = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


@unique
class Answer(IntEnum):
    """Answers of the model process."""

    ALIVE = 1
    READY = 2
    NOT_READY = 3


class Pulse:
    """The model process's end; its thread answers liveness probes from construction on.

    `on_readiness` is called in that thread for a readiness probe. It must not block, and be
    followed by `answer`, from any thread. `on_offer` gets the offer of a region and its
    descriptor.
    """

    def __init__(
        self,
        descriptor: int,
        on_readiness: Callable[[], object],
        on_offer: Callable[[Offer, int], object],
    ) -> None:
        os.set_inheritable(descriptor, False)
        self._connection = socket.socket(fileno=descriptor)
        self._on_readiness = on_readiness
        self._on_offer = on_offer
        threading.Thread(target=self._serve, name="pulse", daemon=True).start()

    def answer(self, *, ready: bool) -> None:
        """Answer a readiness probe."""
        self._send(Answer.READY if ready else Answer.NOT_READY)

    def _serve(self) -> None:
        # The server or the model has closed the socket; or the event loop to notify is closed.
        with self._connection, suppress(OSError, RuntimeError):
            while received := self._receive():
                self._handle(*received)

    def _receive(self) -> tuple[bytes, list[int]] | None:
        """A message and its descriptors; `None` at the end."""
        # `socket.recv_fds` leaves descriptors open in what the model starts.
        room, flags = socket.CMSG_LEN(_INT.size), _CLOSED_IN_CHILDREN
        message, ancillary, _, _ = self._connection.recvmsg(1 + OFFER_SIZE, room, flags)
        descriptors = [
            _INT.unpack_from(data)[0]
            for level, kind, data in ancillary
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        ]
        return (message, descriptors) if message else None

    def _handle(self, message: bytes, descriptors: list[int]) -> None:
        if message[0] == Probe.LIVENESS:
            self._send(Answer.ALIVE)
        elif message[0] == Probe.READINESS:
            self._on_readiness()
        elif descriptors:  # none, if this process has too many files open
            self._on_offer(unpack_offer(message[1:]), descriptors[0])

    def _send(self, answer: Answer) -> None:
        with suppress(OSError):
            self._connection.send(bytes((answer,)))
