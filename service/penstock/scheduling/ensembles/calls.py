"""Calls of ensemble steps: their responses, the reorder buffer, and the concurrency limit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from penstock.core.errors import InferenceError
from penstock.core.request import InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.scheduling.ensembles.plan import PlannedStep, SequenceMark, Wave


class ActiveWave:
    """A wave in flight: its open calls, and its place in the order of responses."""

    __slots__ = ("answered", "calls", "number", "reorder", "wave")

    def __init__(self, wave: Wave, reorder: ReorderBuffer | None = None) -> None:
        self.wave = wave
        self.reorder = reorder
        self.number = reorder.reserve() if reorder is not None else 0
        self.calls = 0
        self.answered = False


class StepCallHandler(Protocol):
    """The callbacks of a step call."""

    def accepts(self, call: StepCall) -> bool:
        """Backpressure: whether another response of a decoupled step may be read now."""

    def answered(self, call: StepCall, response: InferenceResponse, *, last: bool) -> None:
        """A response was read; the `last` one ends the call."""

    def ended(self, call: StepCall, error: InferenceError | None) -> None:
        """The call has ended without a last response."""


class StepCall:
    """Reads the responses of one request to a step's model, as far as the handler accepts them."""

    __slots__ = (
        "_handler",
        "_relaying",
        "_stream",
        "active",
        "mark",
        "number",
        "reorder",
        "responded",
        "step",
    )

    def __init__(
        self,
        handler: StepCallHandler,
        number: int,
        step: PlannedStep,
        active: ActiveWave,
        mark: SequenceMark,
    ) -> None:
        self._handler = handler
        self._stream: ResponseStream | None = None
        self._relaying = False
        self.responded = False
        self.number = number
        self.step = step
        self.active = active
        self.mark = mark
        self.reorder = ReorderBuffer() if step.decoupled else None

    def read(self, stream: ResponseStream) -> None:
        """Read from `stream`, which may deliver, and even end, before this returns."""
        self._stream = stream
        stream.watch(self.relay)

    def relay(self) -> None:
        """Pass the queued responses to the handler."""
        stream = self._stream
        if stream is None or self._relaying:  # ended, or re-entered from the loop below
            return
        self._relaying = True
        handler, last = self._handler, False
        may_wait = self.reorder is not None
        while not last and (not may_wait or handler.accepts(self)):
            response = stream.take_next()
            if response is None:
                break
            last = stream.exhausted and stream.error is None
            handler.answered(self, response, last=last)
        self._relaying = False
        if last:
            self._stream = None
        elif stream.exhausted and self._stream is not None:
            self._stream = None
            handler.ended(self, stream.error)

    def close(self) -> None:
        """Cancel the request."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


MOST_WAVES = 256
"""Responses of one call that may be in later steps at a time; then the call is paused."""


class ReorderBuffer:
    """A reorder buffer: releases responses in the order of their waves' numbers."""

    __slots__ = ("_given", "_held", "_next")

    def __init__(self) -> None:
        self._given = 0
        self._next = 0
        self._held: dict[int, InferenceResponse | None] = {}

    @property
    def full(self) -> bool:
        """Whether the most allowed number of waves is in flight."""
        return self._given - self._next >= MOST_WAVES

    def reserve(self) -> int:
        """Reserve the next number, for a new wave."""
        self._given += 1
        return self._given - 1

    def put(self, number: int, response: InferenceResponse | None) -> list[InferenceResponse]:
        """Add the response of a wave, or `None`; returns the responses that are next in order."""
        self._held[number] = response
        due: list[InferenceResponse] = []
        while self._next in self._held:
            ready = self._held.pop(self._next)
            self._next += 1
            if ready is not None:
                due.append(ready)
        return due


class ConcurrencyLimit:
    """A semaphore with callbacks: calls beyond the limit are queued in order of arrival."""

    def __init__(self, limit: int) -> None:
        self._permits = limit
        self._waiting: OrderedDict[Callable[[], None], None] = OrderedDict()
        self._admitting = False

    @property
    def waiting(self) -> int:
        """The number of queued calls."""
        return len(self._waiting)

    def acquire(self, start: Callable[[], None]) -> bool:
        """Acquire a permit if one is free; otherwise `start` is called once it is acquired."""
        if self._permits and not self._waiting:
            self._permits -= 1
            return True
        self._waiting[start] = None
        return False

    def cancel(self, start: Callable[[], None]) -> None:
        """Remove a cancelled call from the queue."""
        self._waiting.pop(start, None)

    def release(self) -> None:
        """Release a permit, to the first queued call.

        A call may release it again at once; the loop of the outermost `release` handles that,
        so that the stack does not grow.
        """
        self._permits += 1
        if self._admitting:
            return
        self._admitting = True
        try:
            while self._permits and self._waiting:
                self._permits -= 1
                start, _ = self._waiting.popitem(last=False)
                start()
        finally:
            self._admitting = False
