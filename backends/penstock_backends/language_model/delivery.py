"""Delivery of an answer with backpressure: a slow reader gets several tokens in one response."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from penstock.backend import InferenceError, ResponseStream, Window
from penstock_backends.language_model.answer import Answer
from penstock_backends.language_model.generation_record import GenerationRecord
from penstock_backends.language_model.generation_times import GenerationTimes
from penstock_backends.language_model.request import running_error
from penstock_backends.language_model.stream_interval import StreamInterval

WINDOW = Window(responses=2)
"""Flow control: responses of one request in flight. One is being read while the next is made; a
third would mean that the reader has fallen behind, so tokens are merged into one response."""

AT_ONCE = 2
"""Responses of a request that do not wait for the interval: a reader sees that the stream runs."""


class PacedSender(ABC):
    """Sends the responses of one request into `stream`, under flow control and an interval.

    Until the reader takes the previous response, the next one is held, and is sent then; so is one
    within the `interval` after another. Without `merge` nothing is held, so the backlog is limited
    only by the number of tokens. `_closed` is called when the reader closes the stream.
    """

    def __init__(self, *, merge: bool, interval: StreamInterval | None) -> None:
        self.stream = ResponseStream()
        self.stream.connect(self._closed, self._taken)
        self._merge = merge
        self._held = self._due = False
        self._interval = interval if merge else None
        self._sent = 0

    @abstractmethod
    def push(self) -> None:
        """Send what there is, if it may leave."""

    @abstractmethod
    def _closed(self) -> None:
        """The reader has left."""

    def _may_leave(self) -> bool:
        """Whether a response that is not the last may leave now; else it is pushed again.

        One that only its reader kept back has had its turn of the interval: it begins no other,
        which would hold up the next step's tokens of all requests.
        """
        interval = self._interval if self._sent >= AT_ONCE else None
        due = self._due or interval is None or interval.passes(self)
        self._held = self._merge and self.stream.backlog > 0
        self._due = self._held and due
        if self._held:
            return False
        self._sent += due
        return due

    def _taken(self, _: int) -> None:
        if self._held:
            self.push()


class Delivery(PacedSender):
    """Pushes one answer into `stream`; `on_close` is called when the reader closes it.

    `record` is that of a traced request; it is complete before the last response is sent. `times`
    observes the request for the engine's histograms. New tokens that may not leave stay buffered in
    the answer, and are merged into one response.
    """

    def __init__(
        self,
        answer: Answer,
        on_close: Callable[[], None],
        *,
        merge: bool = True,
        record: GenerationRecord | None = None,
        times: GenerationTimes | None = None,
        interval: StreamInterval | None = None,
    ) -> None:
        super().__init__(merge=merge, interval=interval if answer.stream else None)
        self.answer = answer
        self.times = times
        self.record = record
        self._on_close = on_close

    def push(self) -> None:
        """Send a response if one is due and the reader keeps up; the last one is always sent."""
        answer = self.answer
        if not answer.due:
            return
        if not answer.finished:
            if not self._may_leave():
                return
        elif self.record is not None:
            latest = 0 if self.times is None else self.times.latest
            self.record.ended(answer.candidates, latest)
        self.stream.send(answer.take_response())

    def fail(self, error: InferenceError) -> None:
        """End with an error."""
        if self.times is not None:
            self.times.cut_off()
        if self.record is not None:
            self.record.ended(self.answer.candidates)
        self.stream.fail(running_error(error))

    def _closed(self) -> None:
        if self.times is not None:
            self.times.left(self.stream.left_at)
        self._on_close()
        if self.record is not None:
            self.record.ended(self.answer.candidates)
