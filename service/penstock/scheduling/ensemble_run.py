"""`EnsembleRun`: one request on its way through the steps of an ensemble."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from penstock.core.errors import (
    InferenceError,
    InvalidRequestError,
    RejectedError,
    UnavailableError,
)
from penstock.core.inference import ComputeTimes, Inference
from penstock.core.region import RegionSlice
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.statistics import FailureReason
from penstock.core.stream import ResponseStream
from penstock.scheduling.ensemble_call import StepCall, Strand
from penstock.scheduling.ensemble_limit import StepLimit
from penstock.scheduling.ensemble_plan import EnsemblePlan, Step
from penstock.scheduling.ensemble_sequence import SequenceMark
from penstock.scheduling.ensemble_wave import Wave


class StepModel(Protocol):
    """What an ensemble sees of a model that one of its steps calls."""

    def infer(
        self, request: InferenceRequest, within: ComputeTimes | None = None
    ) -> ResponseStream:
        """Admit a request, whose times are added to `within`. Raises what admission refuses."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """What all requests to an ensemble share: `models` and `limits` are those of the steps."""

    plan: EnsemblePlan
    models: Sequence[StepModel]
    limits: Sequence[StepLimit] = ()
    runs: set[EnsembleRun] = field(default_factory=set)


class EnsembleRun:
    """Calls the steps whose inputs are known, and answers when the outputs are.

    Ends when its stream does. There is no task: streams call back, and any call may be over before
    the line that makes it returns. So a call is counted as open from the moment it is decided on.
    """

    __slots__ = (
        "_calls",
        "_demand",
        "_ensemble",
        "_inference",
        "_mark",
        "_open",
        "_sink",
        "_times",
        "_waiting",
    )

    def __init__(self, ensemble: Ensemble, inference: Inference) -> None:
        request = inference.request
        self._ensemble = ensemble
        self._inference = inference
        self._sink = inference.stream
        self._demand = ensemble.plan.demand(request.requested_outputs)
        self._mark = SequenceMark(
            request.correlation_id, request.sequence_start, request.sequence_end
        )
        self._times = ComputeTimes()
        self._calls: set[StepCall] = set()
        self._open = 0
        self._waiting = 0  # calls that have no place yet among those that may run at a time

    def begin(self) -> None:
        """Call the first steps."""
        plan, inputs = self._ensemble.plan, self._inference.request.inputs
        self._ensemble.runs.add(self)
        self._sink.connect(self._stop, self._resume if plan.decoupled else None)
        strand = Strand(Wave(self._demand))
        ready = strand.wave.arrive(inputs)
        ready += strand.wave.arrive({name: None for name in plan.optional if name not in inputs})
        self._advance(strand, ready)
        self._settle()

    def fail(self, error: InferenceError) -> None:
        """Answer with the error of a step; what runs is cancelled (contract E-07)."""
        if self._sink.ended:
            return
        # The real server counts such a failure here a second time (contract ME-28).
        statistics = self._inference.statistics
        statistics.fail.add(time.monotonic_ns() - self._inference.start)
        statistics.failures[FailureReason.OTHER] += 1
        # It was the queue of another model that rejected; an ensemble has none.
        cls = UnavailableError if isinstance(error, RejectedError) else type(error)
        self._sink.fail(cls(f"in ensemble '{self._ensemble.plan.name}', {error.message}"))
        self._stop()

    # -- what calls tell ----------------------------------------------------------------------

    def accepts(self, call: StepCall) -> bool:
        """Whether an answer may be taken; those of a decoupled step wait until there is room."""
        if self._sink.ended:
            return False
        if call.turns is None:
            return True
        return not (self._waiting or self._sink.full or call.turns.full)

    def answered(self, call: StepCall, response: InferenceResponse, *, last: bool) -> None:
        """Go on with what a step has made. Of a step that is not decoupled, once."""
        if response.error is not None:
            return self.fail(response.error)
        if last:
            self._leave(call)
        if call.turns is not None or not call.heard:
            call.heard = True
            self._take_in(call, response)
        return self._over(call) if last else None

    def ended(self, call: StepCall, error: InferenceError | None) -> None:
        """A step has no more to say."""
        if self._sink.ended:
            return None
        if error is not None:
            return self.fail(error)
        self._leave(call)
        return self._over(call)

    # -- going on -----------------------------------------------------------------------------

    def _take_in(self, call: StepCall, response: InferenceResponse) -> None:
        try:
            mark = call.mark.after(response.parameters)
        except InvalidRequestError as error:
            return self.fail(error)
        outputs = self._ensemble.plan.steps[call.number].outputs
        made = {link.tensor: response.outputs.get(link.name) for link in outputs}
        strand = call.strand
        if call.turns is not None:
            strand = Strand(Wave(self._demand), call.turns)
        return self._advance(strand, strand.wave.arrive(made, mark))

    def _advance(self, strand: Strand, ready: Sequence[int]) -> None:
        """Answer if a wave is complete, and call the steps that are ready."""
        self._open += len(ready)
        strand.calls += len(ready)
        if not strand.calls or strand.wave.complete:
            self._answer(strand)
        limits = self._ensemble.limits
        for number in ready:
            if self._sink.ended:
                return
            if not limits or limits[number].enter(partial(self._admitted, strand, number)):
                self._call(strand, number)
            else:
                self._waiting += 1

    def _admitted(self, strand: Strand, number: int) -> bool:
        """It is the turn of a call that has waited for its place; false when nobody wants it."""
        if self._sink.ended:
            return False
        self._waiting -= 1
        self._call(strand, number)
        self._resume()
        return True

    def _call(self, strand: Strand, number: int) -> None:
        asked, step = self._inference.request, self._ensemble.plan.steps[number]
        inputs, mark = strand.wave.take(step)
        mark = mark or self._mark
        call = StepCall(self, number, step, strand, mark)
        self._calls.add(call)
        request = InferenceRequest(
            step.model,
            step.version,
            asked.id,
            inputs,
            step.requested,
            asked.parameters,
            asked.priority,
            asked.timeout,
            mark.correlation_id,
            mark.start,
            mark.end,
            asked.deadline,
            output_places=self._places(step) if asked.output_places else asked.output_places,
            callers=asked.callers,
        )
        try:
            stream = self._ensemble.models[number].infer(request, self._times)
        except InferenceError as error:
            return self.fail(error)
        return call.listen(stream)

    def _places(self, step: Step) -> Mapping[str, RegionSlice]:
        """Outputs of a step that are outputs of the ensemble as they are, and nothing else: the
        step's model may put them where the client wants them."""
        asked, uses = self._inference.request, self._demand.uses
        if self._ensemble.plan.decoupled or asked.classes:
            return {}
        places = asked.output_places
        links = (link for link in step.outputs if uses.get(link.tensor) == 1)
        return {link.name: places[link.tensor] for link in links if link.tensor in places}

    def _leave(self, call: StepCall) -> None:
        """A call is no longer open; its place is free."""
        self._calls.discard(call)
        self._open -= 1
        call.strand.calls -= 1
        if self._ensemble.limits:
            self._ensemble.limits[call.number].leave()

    def _over(self, call: StepCall) -> None:
        """Nothing more comes of a call."""
        if not call.strand.calls:
            self._answer(call.strand)
        if not self._open:
            self._settle()

    # -- answering ----------------------------------------------------------------------------

    def _answer(self, strand: Strand) -> None:
        """Send what a wave has come to, in its turn, or know that nothing will: it is complete, or
        no call works on it any more."""
        if strand.answered:
            return
        strand.answered = True
        response = None
        if strand.wave.complete:
            of_text = isinstance(self._mark.correlation_id, str)
            response = strand.wave.response(of_text=of_text)
        if strand.turns is not None:
            was_full = strand.turns.full
            self._send(strand.turns.put(strand.number, response))
            if was_full:
                self._resume()
        elif response is not None:
            self._send([response])

    def _send(self, responses: Sequence[InferenceResponse]) -> None:
        for left, response in zip(range(len(responses) - 1, -1, -1), responses, strict=True):
            if not left and not self._open:
                self._succeed()
                response = response.as_final()
            self._sink.send(response)

    def _settle(self) -> None:
        """End when no call is open."""
        if self._open or self._sink.ended:
            return
        if self._ensemble.plan.decoupled:
            self._succeed()
            self._sink.end()
        else:
            self.fail(
                InvalidRequestError(
                    f"[request id: {self._inference.request.id or '<id_unknown>'}] unexpected"
                    " deadlock, at least one output is not set while no more ensemble steps can be"
                    " made"
                )
            )

    def _succeed(self) -> None:
        """Count the request; its compute times are the sums of its steps' (contract E-15)."""
        inference, times = self._inference, self._times
        inference.compute_input_end = inference.compute_start + times.compute_input
        inference.compute_output_start = inference.compute_input_end + times.compute_infer
        inference.compute_end = inference.compute_output_start + times.compute_output
        inference.statistics.executed(
            inference.rows, times.compute_input, times.compute_infer, times.compute_output
        )
        self._ensemble.runs.discard(self)

    # -- the reader ---------------------------------------------------------------------------

    def _resume(self, _: int = 0) -> None:
        """There may be room again for answers of decoupled steps."""
        for call in self._decoupled():
            call.move()

    def _decoupled(self) -> Iterable[StepCall]:
        return [call for call in self._calls if call.turns is not None]

    def _stop(self) -> None:
        """Nobody waits for an answer: cancel every call (contract E-13)."""
        self._ensemble.runs.discard(self)
        calls, self._calls = self._calls, set()
        for call in calls:
            call.close()
            if self._ensemble.limits:
                self._ensemble.limits[call.number].leave()
