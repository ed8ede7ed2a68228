"""Delivery of an answer with backpressure: a slow reader gets several tokens in one response."""

from __future__ import annotations

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


class Delivery:
    """Pushes one answer into `stream`; `on_close` is called when the reader closes it.

    `record` is that of a traced request; it is complete before the last response is sent. `times`
    observes the request for the engine's histograms.

    Until the reader takes the previous response, new tokens stay buffered in the answer, and are
    merged into one response that is sent then; so are those that come within the `interval` after
    another response. Without `merge` every token gets a response of its own, so the backlog is
    limited only by the number of tokens.
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
        self.answer = answer
        self.times = times
        self.record = record
        self.stream = ResponseStream()
        self.stream.connect(self._closed, self._taken)
        self._on_close = on_close
        self._merge = merge
        self._held = False
        self._interval = interval if merge and answer.stream else None
        self._sent = 0

    def push(self) -> None:
        """Send a response if one is due and the reader keeps up; the last one is always sent."""
        answer = self.answer
        if not answer.due:
            return
        if not answer.finished:
            self._held = self._merge and self.stream.backlog > 0
            if self._held:
                return
            self._sent += 1
            interval = self._interval if self._sent > AT_ONCE else None
            if interval is not None and not interval.passes(self):
                return
        elif self.record is not None:
            latest = 0 if self.times is None else self.times.latest
            self.record.ended(answer.candidates, latest)
        self.stream.send(answer.take_response())

    def fail(self, error: InferenceError) -> None:
        """End with an error."""
        if self.record is not None:
            self.record.ended(self.answer.candidates)
        self.stream.fail(running_error(error))

    def _closed(self) -> None:
        if self.times is not None and self.stream.left_at:
            self.times.left(self.stream.left_at)
        self._on_close()
        if self.record is not None:
            self.record.ended(self.answer.candidates)

    def _taken(self, _: int) -> None:
        if self._held:
            self.push()
