"""Pushing an answer to its reader, who gets tokens one by one as long as he keeps up."""

from __future__ import annotations

from collections.abc import Callable

from penstock.backend import InferenceError, ResponseStream, Window
from penstock_backends.language_model.answer import Answer

WINDOW = Window(responses=2)
"""How many responses of one request are under way at once. One is being read while the next is
made; with a third the reader has fallen behind, and gets several tokens in one response."""


class Delivery:
    """One answer on its way to whoever reads `stream`.

    While what was sent last has not been taken, what is new stays in the answer, where it merges
    into one response that leaves as soon as the reader takes it. With `merge` off every token gets
    a response of its own, however many wait: as many as the request may have tokens.
    """

    def __init__(self, answer: Answer, on_close: Callable[[], None], *, merge: bool = True) -> None:
        self.answer = answer
        self.stream = ResponseStream()
        self.stream.connect(on_close, self._taken)
        self._merge = merge
        self._held = False

    def push(self) -> None:
        """Send what is due, unless the reader is behind; the end is always sent."""
        answer = self.answer
        if not answer.due:
            return
        self._held = self._merge and self.stream.backlog > 0 and not answer.finished
        if not self._held:
            self.stream.send(answer.take_response())

    def fail(self, error: InferenceError) -> None:
        """End with an error."""
        self.stream.fail(error)

    def _taken(self, _: int) -> None:
        if self._held:
            self.push()
