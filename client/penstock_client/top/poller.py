"""`Poller`: reads an endpoint on a thread, again and again, so that the screen never waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock_client.reading.fetch import FetchError
from penstock_client.top.readings import Readings

Value = TypeVar("Value")


class Poller(Generic[Value]):
    """Calls `read` every `interval` seconds, or at once where it has taken longer.

    `told` is called after each try, on the poller's thread. A thread that waits for the server is
    not waited for at the end.
    """

    def __init__(
        self, read: Callable[[], Value], interval: float, told: Callable[[], None]
    ) -> None:
        self._read = read
        self._interval = interval
        self._told = told
        self._readings: Readings[Value] = Readings()
        self._asked_at: float | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-top", daemon=True)

    @property
    def readings(self) -> Readings[Value]:
        """The readings so far: a value, which is replaced as a whole."""
        return self._readings

    @property
    def waiting_since(self) -> float | None:
        """When the question was asked that is not answered yet, by `time.monotonic`."""
        return self._asked_at

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            self._asked_at = began
            self._readings = read_again(self._readings, self._read)
            self._asked_at = None
            self._told()
            self._stopped.wait(max(0.0, began + self._interval - time.monotonic()))


def read_again(readings: Readings[Value], read: Callable[[], Value]) -> Readings[Value]:
    """The readings after one more try; its time is when it began, since then the server counts."""
    began = time.monotonic()
    try:
        value = read()
    except FetchError as error:
        return readings.failed(str(error), began)
    return readings.succeeded(value, began)
