"""`EnsembleRun`: the execution of one request to an ensemble, step by step."""

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
    """The interface of an ensemble to the model of a step."""

    def infer(
        self, request: InferenceRequest, within: ComputeTimes | None = None
    ) -> ResponseStream:
        """Admit a request; adds its times to `within`. Raises `InferenceError` if refused."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The state that all requests share: `models` and `limits` by step, and the live `runs`."""

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
    """The request to the model of a step, on behalf of the request to the ensemble, `asked`."""
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
        output_places=places,
        on_device=step.on_device,
        scope=asked.scope.part(),
    )


def step_places(
    asked: InferenceRequest, plan: EnsemblePlan, subgraph: Subgraph, step: PlannedStep
) -> Mapping[str, RegionSlice]:
    """The slices of shared memory for outputs of a step that are only outputs of the ensemble.

    The step's model may write them where the client wants them.
    """
    if plan.decoupled or asked.classes:
        return {}
    places, uses = asked.output_places, subgraph.uses
    links = (link for link in step.outputs if uses.get(link.tensor) == 1)
    return {link.name: places[link.tensor] for link in links if link.tensor in places}


class EnsembleRun:
    """Calls each step when its inputs are present, and answers when the outputs are.

    It ends when its stream does. There is no task but callbacks of streams, and a call may end
    before the function that makes it returns. So a call counts as open once it is queued, and a
    loop at the bottom of the stack makes the queued calls, which bounds the recursion.
    """

    __slots__ = (
        "_answer",
        "_calling",
        "_calls",
        "_ensemble",
        "_mark",
        "_open",
        "_paused",
        "_request",
        "_sink",
        "_subgraph",
        "_todo",
        "_waiting",
    )

    def __init__(self, ensemble: Ensemble, inference: Inference) -> None:
        request = self._request = inference.request
        self._ensemble = ensemble
        self._answer = EnsembleAnswer(ensemble.plan.name, inference)
        self._sink = inference.stream
        self._subgraph = ensemble.plan.subgraph(request.requested_outputs)
        self._mark = SequenceMark(
            request.correlation_id, request.sequence_start, request.sequence_end
        )
        self._calls: set[StepCall] = set()
        self._todo: deque[tuple[ActiveWave, int]] = deque()
        self._calling = False
        self._paused = False  # decoupled steps are paused until `_todo` is empty
        self._open = 0
        # Calls queued at a concurrency limit, with the callbacks that start them.
        self._waiting: dict[tuple[ActiveWave, int], Callable[[], None]] = {}

    def begin(self) -> None:
        """Call the first steps."""
        plan, inputs = self._ensemble.plan, _shareable(self._request.inputs)
        self._ensemble.runs.add(self)
        self._sink.connect(self._stop, self._resume if plan.decoupled else None)
        active = ActiveWave(Wave(self._subgraph))
        ready = active.wave.add(inputs)
        if plan.optional:
            absent = dict.fromkeys(name for name in plan.optional if name not in inputs)
            ready += active.wave.add(absent)
        self._advance(active, ready)
        self._settle()

    def fail(self, error: InferenceError) -> None:
        """Answer with the error of a step, and cancel open calls (contract E-07)."""
        if not self._sink.ended:
            self._answer.fail(error)
            self._stop()

    # -- callbacks of calls ---------------------------------------------------------------------

    def accepts(self, call: StepCall) -> bool:
        """Backpressure on decoupled steps: whether a response may be read now."""
        assert call.reorder is not None
        if self._todo:
            self._paused = True
            return False
        return not (self._sink.ended or self._waiting or self._sink.full or call.reorder.full)

    def answered(self, call: StepCall, response: InferenceResponse, *, last: bool) -> None:
        """Add a step's outputs to its wave; unless it is decoupled, those of the first response."""
        if response.error is not None:
            return self.fail(response.error)
        if last:
            self._close_call(call)
        if call.reorder is not None or not call.responded:
            call.responded = True
            self._add_outputs(call, response)
        return self._after_call(call) if last else None

    def ended(self, call: StepCall, error: InferenceError | None) -> None:
        """A call has ended, perhaps with an error."""
        if self._sink.ended:
            return None
        if error is not None:
            return self.fail(error)
        self._close_call(call)
        return self._after_call(call)

    # -- dataflow ------------------------------------------------------------------------------

    def _add_outputs(self, call: StepCall, response: InferenceResponse) -> None:
        mark, outputs = call.mark, response.outputs
        if response.parameters:
            try:
                mark = mark.updated(response.parameters)
            except InvalidRequestError as error:
                return self.fail(error)
        made = {link.tensor: outputs.get(link.name) for link in call.step.outputs}
        active = call.active
        if call.reorder is not None:
            active = ActiveWave(Wave(self._subgraph), call.reorder)
        return self._advance(active, active.wave.add(made, mark))

    def _advance(self, active: ActiveWave, ready: Sequence[int]) -> None:
        """Answer if the wave is complete, and call the steps that are ready."""
        self._open += len(ready)
        active.calls += len(ready)
        if not active.calls or active.wave.complete:
            self._finish(active)
        for number in ready:
            self._todo.append((active, number))
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
            elif self._paused:
                self._paused = False
                self._resume()
            else:
                return

    def _call_next(self) -> None:
        active, number = self._todo.popleft()
        limits = self._ensemble.limits
        if limits:
            start = partial(self._admitted, active, number)
            if not limits[number].acquire(start):
                self._waiting[active, number] = start
                return
        self._call(active, number)

    def _admitted(self, active: ActiveWave, number: int) -> None:
        """Make a call that was queued at its concurrency limit."""
        del self._waiting[active, number]
        self._call(active, number)
        self._resume()

    def _call(self, active: ActiveWave, number: int) -> None:
        asked, ensemble = self._request, self._ensemble
        step = ensemble.plan.steps[number]
        inputs, mark = active.wave.take_inputs(step)
        if mark is None:
            mark = self._mark
        call = StepCall(self, number, step, active, mark)
        self._calls.add(call)
        places = asked.output_places
        if places:
            places = step_places(asked, ensemble.plan, self._subgraph, step)
        request = step_request(asked, step, inputs, mark, places)
        try:
            stream = ensemble.models[number].infer(request, self._answer.times)
        except InferenceError as error:
            return self.fail(error)
        return call.read(stream)

    def _close_call(self, call: StepCall) -> None:
        """Close a call, and release its permit."""
        self._calls.discard(call)
        self._open -= 1
        call.active.calls -= 1
        if self._ensemble.limits:
            self._ensemble.limits[call.number].release()

    def _after_call(self, call: StepCall) -> None:
        """Finish the wave and the run if this was the last call of either."""
        if not call.active.calls:
            self._finish(call.active)
        if not self._open:
            self._settle()

    # -- answering ----------------------------------------------------------------------------

    def _finish(self, active: ActiveWave) -> None:
        """Send the response of a complete wave, in order, or skip one that stays incomplete."""
        if active.answered:
            return
        active.answered = True
        response = None
        if active.wave.complete:
            of_text = isinstance(self._mark.correlation_id, str)
            response = active.wave.response(of_text=of_text)
        if active.reorder is not None:
            was_full = active.reorder.full
            self._send(active.reorder.put(active.number, response))
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
        """End the run if no call is open."""
        if not self._open and not self._sink.ended:
            self._stop()
            self._answer.end(decoupled=self._ensemble.plan.decoupled)

    # -- the reader ---------------------------------------------------------------------------

    def _resume(self, _: int = 0) -> None:
        """Resume the paused calls of decoupled steps."""
        for call in [call for call in self._calls if call.reorder is not None]:
            call.relay()

    def _stop(self) -> None:
        """Cancel every open and queued call (contract E-13)."""
        limits = self._ensemble.limits
        self._ensemble.runs.discard(self)
        waiting, self._waiting = self._waiting, {}
        for (_, number), start in waiting.items():
            limits[number].cancel(start)
        calls, self._calls = self._calls, set()
        for call in calls:
            call.close()
            if limits:
                limits[call.number].release()


def _shareable(inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The inputs, of which none is exclusive, so that no step overwrites what another reads."""
    return {
        name: Tensor(tensor.datatype, tensor.shape, tensor.buffer) if _exclusive(tensor) else tensor
        for name, tensor in inputs.items()
    }


def _exclusive(tensor: Tensor) -> bool:
    return tensor.shared is not None and tensor.shared.region.exclusive
