"""Calls of ensemble steps: one request each, the order of answers, and the concurrency limit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from penstock.core.errors import InferenceError
from penstock.core.request import InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.scheduling.ensembles.plan import PlannedStep, SequenceMark, Wave


class ActiveWave:
    """A wave at work: how many calls may still add to it, and its turn to be answered."""

    __slots__ = ("answered", "calls", "number", "turns", "wave")

    def __init__(self, wave: Wave, turns: ReorderBuffer | None = None) -> None:
        self.wave = wave
        self.turns = turns
        self.number = turns.give() if turns is not None else 0
        self.calls = 0
        self.answered = False


class StepCallHandler(Protocol):
    """Who made a call and wants its answers."""

    def accepts(self, call: StepCall) -> bool:
        """Whether another answer of a decoupled step may come now."""

    def answered(self, call: StepCall, response: InferenceResponse, *, last: bool) -> None:
        """An answer; after the `last` one the call is over."""

    def ended(self, call: StepCall, error: InferenceError | None) -> None:
        """The call is over without a last answer."""


class StepCall:
    """Takes answers as they come and as its caller accepts them; the stream calls back."""

    __slots__ = (
        "_caller",
        "_moving",
        "_stream",
        "heard",
        "mark",
        "number",
        "step",
        "strand",
        "turns",
    )

    def __init__(
        self,
        caller: StepCallHandler,
        number: int,
        step: PlannedStep,
        strand: ActiveWave,
        mark: SequenceMark,
    ) -> None:
        self._caller = caller
        self._stream: ResponseStream | None = None
        self._moving = False
        self.heard = False
        self.number = number
        self.step = step
        self.strand = strand
        self.mark = mark
        self.turns = ReorderBuffer() if step.decoupled else None

    def listen(self, stream: ResponseStream) -> None:
        """Take what comes on `stream`, which may begin, and end, before this returns."""
        self._stream = stream
        stream.watch(self.move)

    def move(self) -> None:
        """Hand on what is there."""
        stream = self._stream
        if stream is None or self._moving:  # over, or called back from below: the loop goes on
            return
        self._moving = True
        caller, last = self._caller, False
        may_wait = self.turns is not None
        while not last and (not may_wait or caller.accepts(self)):
            response = stream.pop()
            if response is None:
                break
            last = stream.exhausted and stream.error is None
            caller.answered(self, response, last=last)
        self._moving = False
        if last:
            self._stream = None
        elif stream.exhausted and self._stream is not None:
            self._stream = None
            caller.ended(self, stream.error)

    def close(self) -> None:
        """Want no more, which cancels the request."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


MOST_WAVES = 256
"""Answers of one call that may be on their way through later steps; then the step has to wait."""


class ReorderBuffer:
    """Responses by the number of their wave; those that come early are held."""

    __slots__ = ("_given", "_held", "_next")

    def __init__(self) -> None:
        self._given = 0
        self._next = 0
        self._held: dict[int, InferenceResponse | None] = {}

    @property
    def full(self) -> bool:
        """Whether enough waves are on their way."""
        return self._given - self._next >= MOST_WAVES

    def give(self) -> int:
        """The number of another wave."""
        self._given += 1
        return self._given - 1

    def put(self, number: int, response: InferenceResponse | None) -> list[InferenceResponse]:
        """Take the response of a wave, or that there is none; those whose turn has come."""
        self._held[number] = response
        due: list[InferenceResponse] = []
        while self._next in self._held:
            ready = self._held.pop(self._next)
            self._next += 1
            if ready is not None:
                due.append(ready)
        return due


class ConcurrencyLimit:
    """Calls beyond the limit wait in order of arrival."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: OrderedDict[Callable[[], None], None] = OrderedDict()
        self._admitting = False

    @property
    def waiting(self) -> int:
        """Calls that have no place yet."""
        return len(self._waiting)

    def enter(self, start: Callable[[], None]) -> bool:
        """Take a place if one is free; otherwise `start` is called when it has got one."""
        if self._free and not self._waiting:
            self._free -= 1
            return True
        self._waiting[start] = None
        return False

    def forget(self, start: Callable[[], None]) -> None:
        """Nobody wants this call any more."""
        self._waiting.pop(start, None)

    def leave(self) -> None:
        """Give a place back, to the first who waits for one.

        Who gets it may give it back at once, which is no reason to go deeper.
        """
        self._free += 1
        if self._admitting:
            return
        self._admitting = True
        try:
            while self._free and self._waiting:
                self._free -= 1
                start, _ = self._waiting.popitem(last=False)
                start()
        finally:
            self._admitting = False
