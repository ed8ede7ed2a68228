"""`EnsembleRun`: one request on its way through the steps of an ensemble."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from penstock.core.errors import InferenceError, InvalidRequestError
from penstock.core.region import RegionSlice
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.inflight.inference import ComputeTimes, Inference
from penstock.scheduling.ensembles.answer import EnsembleAnswer
from penstock.scheduling.ensembles.calls import ActiveWave, ConcurrencyLimit, StepCall
from penstock.scheduling.ensembles.plan import (
    EnsemblePlan,
    PlannedStep,
    SequenceMark,
    Subgraph,
    Wave,
)


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
    limits: Sequence[ConcurrencyLimit] = ()
    runs: set[EnsembleRun] = field(default_factory=set)


def step_request(
    asked: InferenceRequest,
    step: PlannedStep,
    inputs: Mapping[str, Tensor],
    mark: SequenceMark,
    places: Mapping[str, RegionSlice],
) -> InferenceRequest:
    """What the model of a step is asked for the sake of the request to the ensemble."""
    return InferenceRequest(
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
        output_places=places,
        call_chain=asked.call_chain,
        on_device=step.on_device,
    )


def step_places(
    asked: InferenceRequest, plan: EnsemblePlan, demand: Subgraph, step: PlannedStep
) -> Mapping[str, RegionSlice]:
    """Outputs of a step that are outputs of the ensemble as they are, and nothing else: the
    step's model may put them where the client wants them."""
    if plan.decoupled or asked.classes:
        return {}
    places, uses = asked.output_places, demand.uses
    links = (link for link in step.outputs if uses.get(link.tensor) == 1)
    return {link.name: places[link.tensor] for link in links if link.tensor in places}


class EnsembleRun:
    """Calls the steps whose inputs are known, and answers when the outputs are.

    Ends when its stream does. There is no task: streams call back, and any call may be over before
    the line that makes it returns. So a call is counted as open from the moment it is decided on,
    and made by a loop at the bottom of the stack, however many follow each other at once.
    """

    __slots__ = (
        "_answer",
        "_calling",
        "_calls",
        "_demand",
        "_ensemble",
        "_held_back",
        "_mark",
        "_open",
        "_request",
        "_sink",
        "_todo",
        "_waiting",
    )

    def __init__(self, ensemble: Ensemble, inference: Inference) -> None:
        request = self._request = inference.request
        self._ensemble = ensemble
        self._answer = EnsembleAnswer(ensemble.plan.name, inference)
        self._sink = inference.stream
        self._demand = ensemble.plan.demand(request.requested_outputs)
        self._mark = SequenceMark(
            request.correlation_id, request.sequence_start, request.sequence_end
        )
        self._calls: set[StepCall] = set()
        self._todo: deque[tuple[ActiveWave, int]] = deque()
        self._calling = False
        self._held_back = False  # an answer of a decoupled step waits for the calls to be made
        self._open = 0
        # Calls that have no place yet among those that may run at a time, and what starts them.
        self._waiting: dict[tuple[ActiveWave, int], Callable[[], None]] = {}

    def begin(self) -> None:
        """Call the first steps."""
        plan, inputs = self._ensemble.plan, _for_many(self._request.inputs)
        self._ensemble.runs.add(self)
        self._sink.connect(self._stop, self._resume if plan.decoupled else None)
        strand = ActiveWave(Wave(self._demand))
        ready = strand.wave.arrive(inputs)
        if plan.optional:
            absent = dict.fromkeys(name for name in plan.optional if name not in inputs)
            ready += strand.wave.arrive(absent)
        self._advance(strand, ready)
        self._settle()

    def fail(self, error: InferenceError) -> None:
        """Answer with the error of a step; what runs is cancelled (contract E-07)."""
        if not self._sink.ended:
            self._answer.fail(error)
            self._stop()

    # -- what calls tell ----------------------------------------------------------------------

    def accepts(self, call: StepCall) -> bool:
        """Whether an answer of a decoupled step may be taken: it waits until there is room."""
        assert call.turns is not None
        if self._todo:
            self._held_back = True
            return False
        return not (self._sink.ended or self._waiting or self._sink.full or call.turns.full)

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
        mark, outputs = call.mark, response.outputs
        if response.parameters:
            try:
                mark = mark.after(response.parameters)
            except InvalidRequestError as error:
                return self.fail(error)
        made = {link.tensor: outputs.get(link.name) for link in call.step.outputs}
        strand = call.strand
        if call.turns is not None:
            strand = ActiveWave(Wave(self._demand), call.turns)
        return self._advance(strand, strand.wave.arrive(made, mark))

    def _advance(self, strand: ActiveWave, ready: Sequence[int]) -> None:
        """Answer if a wave is complete, and call the steps that are ready."""
        self._open += len(ready)
        strand.calls += len(ready)
        if not strand.calls or strand.wave.complete:
            self._finish(strand)
        for number in ready:
            self._todo.append((strand, number))
        if not self._calling:
            self._calling = True
            try:
                self._call_all()
            finally:
                self._calling = False

    def _call_all(self) -> None:
        while not self._sink.ended:
            if self._todo:
                self._call_next()
            elif self._held_back:
                self._held_back = False
                self._resume()
            else:
                return

    def _call_next(self) -> None:
        strand, number = self._todo.popleft()
        limits = self._ensemble.limits
        if limits:
            start = partial(self._admitted, strand, number)
            if not limits[number].enter(start):
                self._waiting[strand, number] = start
                return
        self._call(strand, number)

    def _admitted(self, strand: ActiveWave, number: int) -> None:
        """A call that has waited for its place has got it."""
        del self._waiting[strand, number]
        self._call(strand, number)
        self._resume()

    def _call(self, strand: ActiveWave, number: int) -> None:
        asked, ensemble = self._request, self._ensemble
        step = ensemble.plan.steps[number]
        inputs, mark = strand.wave.take(step)
        if mark is None:
            mark = self._mark
        call = StepCall(self, number, step, strand, mark)
        self._calls.add(call)
        places = asked.output_places
        if places:
            places = step_places(asked, ensemble.plan, self._demand, step)
        request = step_request(asked, step, inputs, mark, places)
        try:
            stream = ensemble.models[number].infer(request, self._answer.times)
        except InferenceError as error:
            return self.fail(error)
        return call.listen(stream)

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
            self._finish(call.strand)
        if not self._open:
            self._settle()

    # -- answering ----------------------------------------------------------------------------

    def _finish(self, strand: ActiveWave) -> None:
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
        last = not self._open
        if last and responses:
            self._ensemble.runs.discard(self)
        self._answer.send(responses, last=last)

    def _settle(self) -> None:
        """End when no call is open."""
        if not self._open and not self._sink.ended:
            self._stop()
            self._answer.end(decoupled=self._ensemble.plan.decoupled)

    # -- the reader ---------------------------------------------------------------------------

    def _resume(self, _: int = 0) -> None:
        """There may be room again for answers of decoupled steps."""
        for call in [call for call in self._calls if call.turns is not None]:
            call.move()

    def _stop(self) -> None:
        """Nobody waits for an answer: cancel every call (contract E-13)."""
        limits = self._ensemble.limits
        self._ensemble.runs.discard(self)
        waiting, self._waiting = self._waiting, {}
        for (_, number), start in waiting.items():
            limits[number].forget(start)
        calls, self._calls = self._calls, set()
        for call in calls:
            call.close()
            if limits:
                limits[call.number].leave()


def _for_many(inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The inputs for several steps, none of which may write to where another one reads."""
    return {
        name: Tensor(tensor.datatype, tensor.shape, tensor.buffer) if _exclusive(tensor) else tensor
        for name, tensor in inputs.items()
    }


def _exclusive(tensor: Tensor) -> bool:
    return tensor.shared is not None and tensor.shared.region.exclusive
