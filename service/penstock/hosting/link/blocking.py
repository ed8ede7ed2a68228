"""The link as a blocking socket, for model processes whose code blocks: thread-safe."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from penstock.core.buffer import Buffer
from penstock.hosting.link.link import FrameReader, encode_answer, joined

_READ = 256 * 1024
_HOLD = 0.001
"""Seconds that a held message is delayed, at most, to be written with others."""
_BURST = 100_000
"""Nanoseconds between two messages of one burst, at most."""
_IDLE_TURNS = 50
"""Turns without a held message after which the flushing thread goes to sleep."""


class LinkClosedError(Exception):
    """The server is gone."""


class BlockingLink:
    """Messages over a socket without an event loop, read by the threads that wait for them.

    Its only own thread flushes held messages; it starts with the first of these.
    One of the threads that wait reads the socket for all of them; the others sleep until it has a
    message for them, or hands the reading over. The callback `on_message` is called by the reading
    thread, under the lock of `wait`, and must not block.
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
        """Whether nothing more is read: the server has left, or a message could not be handled."""
        return self._closed

    def fileno(self) -> int:
        """The socket, for an event loop to watch."""
        return self._socket.fileno()

    def send(self, kind: int, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Send a message at once; blocks while the server does not read (backpressure)."""
        self.send_parts(encode_answer(kind, header, payload))

    def send_parts(self, parts: Sequence[Buffer]) -> None:
        """Send encoded messages; raises `LinkClosedError` when the socket is closed."""
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
        """Send a message; the first of a burst at once, the others together each millisecond."""
        now = time.monotonic_ns()
        follows = now - self._offered < _BURST
        self._offered = now
        parts = encode_answer(kind, header, payload)
        if follows and now - self._written < _HOLD * 1e9:
            self.hold_parts(parts)
        else:
            self.send_parts(parts)

    def hold_parts(self, parts: Sequence[Buffer]) -> None:
        """Queue messages until the next write, or for a millisecond.

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
        """Handle the messages that have already arrived, without blocking."""
        with self._changed:
            if not self._reading:
                self._read(block=False)

    def _watch(self) -> None:
        """The flushing thread: writes held messages in time, whatever their sender is doing."""
        while True:
            self._holding.wait()
            idle = 0
            while idle < _IDLE_TURNS:
                time.sleep(_HOLD)
                idle = 0 if self._held else idle + 1
                try:
                    self.send_parts(())
                except LinkClosedError:
                    return  # a thread that waits for a message gets the same error
            self._holding.clear()
            if self._held:  # since the last look
                self._holding.set()

    def _read(self, *, block: bool) -> None:
        """Read once, with the lock released, and handle the messages."""
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
            self._changed.notify_all()  # a thread that wakes still has to get the lock
        if count == 0:
            self._closed = True
        if count:
            self._handle(count)

    def _handle(self, count: int) -> None:
        """Handle the messages that so many bytes complete; after an error there are no others."""
        try:
            # A copy, since tensors are views of it; writable, since models write to their inputs.
            for message in self._frames.feed(self._buffer[:count]):
                self._on_message(*message)
        except BaseException:  # what was read with it is lost, the beginning of a frame too
            self._closed = True
            raise
