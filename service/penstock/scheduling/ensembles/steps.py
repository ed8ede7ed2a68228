"""`Ensemble`: what its requests share, and what one of them asks of the models of the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.core.region import RegionSlice
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.inflight.inference import ComputeTimes
from penstock.scheduling.ensembles.limit import StepLimit
from penstock.scheduling.ensembles.plan import Demand, EnsemblePlan, Step
from penstock.scheduling.ensembles.sequence import SequenceMark

if TYPE_CHECKING:
    from penstock.scheduling.ensembles.run import EnsembleRun


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


def step_request(
    asked: InferenceRequest,
    step: Step,
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
        callers=asked.callers,
        on_device=step.on_device,
    )


def step_places(
    asked: InferenceRequest, plan: EnsemblePlan, demand: Demand, step: Step
) -> Mapping[str, RegionSlice]:
    """Outputs of a step that are outputs of the ensemble as they are, and nothing else: the
    step's model may put them where the client wants them."""
    if plan.decoupled or asked.classes:
        return {}
    places, uses = asked.output_places, demand.uses
    links = (link for link in step.outputs if uses.get(link.tensor) == 1)
    return {link.name: places[link.tensor] for link in links if link.tensor in places}
