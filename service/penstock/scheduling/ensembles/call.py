"""`StepCall`: one request to the model of an ensemble's step, and the answers that come."""

from __future__ import annotations

from typing import Protocol

from penstock.core.errors import InferenceError
from penstock.core.request import InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.scheduling.ensembles.plan import Step
from penstock.scheduling.ensembles.sequence import SequenceMark
from penstock.scheduling.ensembles.turns import Turns
from penstock.scheduling.ensembles.wave import Wave


class Strand:
    """A wave at work: how many calls may still add to it, and its turn to be answered."""

    __slots__ = ("answered", "calls", "number", "turns", "wave")

    def __init__(self, wave: Wave, turns: Turns | None = None) -> None:
        self.wave = wave
        self.turns = turns
        self.number = turns.give() if turns is not None else 0
        self.calls = 0
        self.answered = False


class Caller(Protocol):
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
        self, caller: Caller, number: int, step: Step, strand: Strand, mark: SequenceMark
    ) -> None:
        self._caller = caller
        self._stream: ResponseStream | None = None
        self._moving = False
        self.heard = False
        self.number = number
        self.step = step
        self.strand = strand
        self.mark = mark
        self.turns = Turns() if step.decoupled else None

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
