"""The link of a model process whose code blocks: any thread may send, and any may wait."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from penstock.core.buffer import Buffer
from penstock.hosting.link.frames import FrameReader, encode, joined

_READ = 256 * 1024
_HOLD = 0.001
"""Seconds that a held message may wait, at most, for others to leave with it."""
_BURST = 100_000
"""Nanoseconds between two messages that are offered one right after the other."""
_IDLE_TURNS = 50
"""Turns without a held message after which nobody looks for late ones any more."""


class LinkClosedError(Exception):
    """The server is gone."""


class BlockingLink:
    """Messages over a socket without an event loop: no thread of its own, no hand-over.

    Whoever waits for something reads the socket for everybody; the others that wait sleep until
    the reader has something for them or leaves the reading to one of them. `on_message` is called
    by the reading thread, under the lock of `wait`, and must not block.
    """

    def __init__(
        self, connection: socket.socket, on_message: Callable[[int, Any, memoryview], None]
    ) -> None:
        self._socket = connection
        self._on_message = on_message
        self._frames = FrameReader()
        self._buffer = bytearray(_READ)
        self._sending = threading.Lock()
        self._held: list[Buffer] = []
        self._offered = self._written = 0
        self.waited = 0  # nanoseconds that the thread which made this has waited
        self._owner = threading.get_ident()
        self._holding = threading.Event()
        self._watcher: threading.Thread | None = None
        self._changed = threading.Condition(threading.RLock())
        self._reading = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the server has gone."""
        return self._closed

    def fileno(self) -> int:
        """The socket, for an event loop to watch."""
        return self._socket.fileno()

    def send(self, kind: int, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Send a message at once; waits while the server does not read."""
        self.send_parts(encode(kind, header, payload))

    def send_parts(self, parts: Sequence[Buffer]) -> None:
        """Send messages that are encoded already; raises `LinkClosedError` when nobody reads."""
        if not parts and not self._held:
            return
        try:
            with self._sending:
                if self._held:
                    self._held += parts
                    parts, self._held = self._held, []
                self._written = time.monotonic_ns()
                for part in joined(parts):
                    self._socket.sendall(part)
        except OSError as error:
            raise LinkClosedError from error

    def offer(self, kind: int, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Send a message; of a burst the first at once, the others together every millisecond."""
        now = time.monotonic_ns()
        follows = now - self._offered < _BURST
        self._offered = now
        parts = encode(kind, header, payload)
        if follows and now - self._written < _HOLD * 1e9:
            self.hold_parts(parts)
        else:
            self.send_parts(parts)

    def hold_parts(self, parts: Sequence[Buffer]) -> None:
        """Send messages together with what is sent next, or on its own when that takes long.

        A write that wakes the server costs more than a quick execution.
        """
        with self._sending:
            self._held += parts
        if not self._holding.is_set():
            self._holding.set()
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, daemon=True)
                self._watcher.start()

    def wait(self, done: Callable[[], bool]) -> None:
        """Read messages until `done()`; raises `LinkClosedError` when there are no more."""
        with self._changed:
            if done():
                return
            begun = time.monotonic_ns()
            while not done():
                if self._held:
                    self.send_parts(())
                if self._closed:
                    raise LinkClosedError
                if self._reading:
                    self._changed.wait()
                else:
                    self._read(block=True)
            if threading.get_ident() == self._owner:
                self.waited += time.monotonic_ns() - begun

    def poll(self) -> None:
        """Handle the messages that are here already, without waiting."""
        with self._changed:
            if not self._reading:
                self._read(block=False)

    def _watch(self) -> None:
        """See that nothing is held for long, whatever the thread that holds it does."""
        while True:
            self._holding.wait()
            idle = 0
            while idle < _IDLE_TURNS:
                time.sleep(_HOLD)
                idle = 0 if self._held else idle + 1
                try:
                    self.send_parts(())
                except LinkClosedError:
                    return  # whoever waits for the next message sees it too
            self._holding.clear()
            if self._held:  # since the last look
                self._holding.set()

    def _read(self, *, block: bool) -> None:
        """Read once, with the lock released, and handle what came."""
        self._reading = True
        self._changed.release()
        count: int | None = 0
        try:
            count = self._socket.recv_into(self._buffer, 0, 0 if block else socket.MSG_DONTWAIT)
        except BlockingIOError:
            count = None
        except OSError:
            pass
        finally:
            self._changed.acquire()
            self._reading = False
            self._changed.notify_all()  # who wakes has to wait for the lock
        if count == 0:
            self._closed = True
        if count:
            # A copy, since tensors are views of it; writable, since models write to their inputs.
            for message in self._frames.feed(self._buffer[:count]):
                self._on_message(*message)
