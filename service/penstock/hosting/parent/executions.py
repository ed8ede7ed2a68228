"""The batches that a model process has been given and has not finished."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from math import inf

from penstock.inflight.inference import Inference

_AHEAD = 300_000
"""Nanoseconds of executions that a process may have waiting; waking it costs as much as some."""


class Executions:
    """Says when the next batch may be sent, and counts those that are done.

    A process gets one batch at a time. Only while its executions are quick it may have more, up
    to `ahead`: then it finds the next one without being woken for it. An execution longer than
    `limit` seconds is reported to `on_late`, once.
    """

    def __init__(
        self,
        *,
        serial: bool,
        ahead: int,
        limit: float | None,
        on_late: Callable[[], None],
    ) -> None:
        self._serial = serial
        self._ahead = ahead
        self._limit = limit
        self._on_late = on_late
        self._open: dict[int, Sequence[Inference]] = {}
        self._window: float = 1 if serial else inf
        self._on_room: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def repeated(self, number: int, batch: Sequence[Inference]) -> None:
        """The process has been given a batch that another one has not begun."""
        self.sent(number, batch, _nobody)

    def sent(self, number: int, batch: Sequence[Inference], on_room: Callable[[], None]) -> None:
        """The process has been given a batch; `on_room` is called once it may have another."""
        self._open[number] = batch
        if len(self._open) == 1:
            self._watch()
        self._on_room = on_room
        self._make_room()

    def done(
        self, number: int, begun: int, input_end: int, output_start: int, waited: int = 0
    ) -> None:
        """The process has executed a batch; times are from `time.monotonic_ns`, which it shares.

        So many nanoseconds of them it `waited` for other models that it had asked.
        """
        batch = self._open.pop(number, None)
        if batch is None:
            return
        for inference in batch:
            inference.compute_start = begun
            inference.compute_input_end = input_end
            if self._serial:  # others go on computing after `execute` has returned
                inference.compute_output_start = output_start
            if inference.wait is not None:  # the answer comes now, or from a thread of the model
                inference.wait.end()
        rows = sum(inference.rows for inference in batch)
        output = max(time.monotonic_ns() - output_start, 0)  # on its way from there to here
        batch[0].statistics.executed(rows, input_end - begun, output_start - input_end, output)
        self._watch()
        if self._serial:
            self._resize(output_start - begun - waited)
        self._make_room()

    def _resize(self, duration: int) -> None:
        """A slow execution closes the window at once, quick ones open it step by step."""
        fitting = _AHEAD // max(duration, 1)
        self._window = max(1, min(fitting, self._window + 1, self._ahead))

    @property
    def current(self) -> Sequence[Inference]:
        """The batch that is executing and may wait for others; none where batches overlap."""
        return next(iter(self._open.values()), ()) if self._serial else ()

    def not_begun(self, begun: int) -> list[Sequence[Inference]]:
        """Take back what was sent ahead and was not begun; `begun` is the last batch that was.

        Not the first of those that are open, which may be what ended the process while it was
        read, nor any of a backend that overlaps its batches.
        """
        if not self._serial:
            return []
        waiting = [number for number in list(self._open)[1:] if number > begun]
        return [self._open.pop(number) for number in waiting]

    def clear(self) -> None:
        """The process is gone."""
        self._open.clear()
        self._watch()
        self._make_room()

    def _make_room(self) -> None:
        on_room = self._on_room
        if on_room is not None and len(self._open) < self._window:
            self._on_room = None
            on_room()

    def _watch(self) -> None:
        """Give the execution that is first now its time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._limit is not None and self._open:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limit, self._on_late)


def _nobody() -> None:
    """Whoever sent this batch has long gone on."""
