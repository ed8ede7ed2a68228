"""Pushing an answer to its reader without queueing for a slow one."""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.errors import InferenceError
from penstock.core.stream import HIGH_WATER, ResponseStream
from penstock_backends.language_model.answer import Answer


class Delivery:
    """One answer on its way to whoever reads `stream`.

    While the reader is `HIGH_WATER` responses behind, what is new stays in the answer, where it
    merges into one response that leaves when the reader catches up.
    """

    def __init__(self, answer: Answer, on_close: Callable[[], None]) -> None:
        self.answer = answer
        self.stream = ResponseStream()
        self.stream.connect(on_close, self._taken)
        self._unread = 0
        self._held = False

    def push(self) -> None:
        """Send what is due, unless the reader is behind; the end is always sent."""
        if not self.answer.due:
            return
        self._held = self._unread >= HIGH_WATER and not self.answer.finished
        if not self._held:
            self._unread += 1
            self.stream.send(self.answer.take())

    def fail(self, error: InferenceError) -> None:
        """End with an error."""
        self.stream.fail(error)

    def _taken(self, count: int) -> None:
        self._unread -= count
        if self._held:
            self.push()
