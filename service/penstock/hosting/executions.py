"""The batches that a model process has been given and has not finished."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.core.inference import Inference
from penstock.core.statistics import Statistics

_QUICK = 300_000
"""Nanoseconds of an execution below which waking the process costs more than running it."""


class Executions:
    """Says when the next batch may be sent, and counts those that are done.

    A process gets one batch at a time. Only while its executions are quick it may have up to
    `ahead`: then it finds the next one without being woken for it. An execution longer than
    `limit` seconds is reported to `on_late`, once.
    """

    def __init__(
        self,
        statistics: Statistics,
        *,
        serial: bool,
        ahead: int,
        limit: float | None,
        on_late: Callable[[], None],
    ) -> None:
        self._statistics = statistics
        self._serial = serial
        self._ahead = ahead
        self._limit = limit
        self._on_late = on_late
        self._open: dict[int, Sequence[Inference]] = {}
        self._quick = False
        self._room: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def sent(self, number: int, batch: Sequence[Inference]) -> None:
        """The process has been given a batch."""
        self._open[number] = batch
        if len(self._open) == 1:
            self._watch()

    async def room(self) -> None:
        """Wait until the process may have another batch."""
        while len(self._open) >= (self._ahead if self._quick else 1):
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def done(self, number: int, begun: int, input_end: int, output_start: int) -> None:
        """The process has executed a batch; times are from `time.monotonic_ns`, which it shares."""
        batch = self._open.pop(number, None)
        if batch is None:
            return
        self._quick = output_start - begun < _QUICK
        for inference in batch:
            inference.compute_start = begun
            inference.compute_input_end = input_end
            if self._serial:  # others go on computing after `execute` has returned
                inference.compute_output_start = output_start
        rows = sum(inference.rows for inference in batch)
        self._statistics.executed(rows, input_end - begun, output_start - input_end, 0)
        self._watch()
        self._make_room()

    def clear(self) -> None:
        """The process is gone."""
        self._open.clear()
        self._watch()
        self._make_room()

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _watch(self) -> None:
        """Give the execution that is first now its time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._limit is not None and self._open:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limit, self._on_late)
