"""Which steps of an ensemble may run, and what has come of them: decided without clock or task."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.request import InferenceResponse
from penstock.core.tensor import Tensor
from penstock.scheduling.ensembles.plan import Demand, Step
from penstock.scheduling.ensembles.sequence import SequenceMark


class Wave:
    """Tensors that belong together, and the steps that wait for some of them.

    The first wave of a request holds its inputs; each response of a decoupled step is a wave of
    its own. Steps add what they make of a wave to that wave. `None` stands for an optional tensor
    that is absent (contract E-08). A tensor is dropped with its last use (E-19).
    """

    __slots__ = ("_demand", "_lacking", "_open", "_tensors", "_uses")

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._lacking = list(demand.lacking)
        self._uses = dict(demand.uses)
        self._tensors: dict[str, tuple[Tensor | None, SequenceMark | None]] = {}
        self._open = len(demand.outputs)

    @property
    def complete(self) -> bool:
        """Whether every output that is wanted is there."""
        return not self._open

    @property
    def held(self) -> int:
        """Tensors that somebody still needs."""
        return len(self._tensors)

    def arrive(
        self, tensors: Mapping[str, Tensor | None], mark: SequenceMark | None = None
    ) -> list[int]:
        """Add tensors; the numbers of the steps that may run now, each told once."""
        ready: list[int] = []
        demand = self._demand
        for name, tensor in tensors.items():
            if name not in self._uses:
                continue  # nobody wants it
            self._tensors[name] = (tensor, mark)
            takers = demand.takers.get(name, ())
            if demand.uses[name] > len(takers):
                self._open -= 1
            for step in takers:
                self._lacking[step] -= 1
                if not self._lacking[step]:
                    ready.append(step)
        return ready

    def take(self, step: Step) -> tuple[dict[str, Tensor], SequenceMark | None]:
        """The inputs of a step that is ready, and the sequence that they belong to if any says.

        Where they disagree the first counts.
        """
        inputs: dict[str, Tensor] = {}
        known: SequenceMark | None = None
        for link in step.inputs:
            tensor, mark = self._tensors[link.tensor]
            known = known or mark
            if tensor is not None:
                inputs[link.name] = tensor if link.rebatch is None else link.rebatch(tensor)
        for name in step.tensors:
            self._used(name)
        return inputs, known

    def response(self, *, of_text: bool) -> InferenceResponse:
        """What the ensemble answers once the wave is complete; an absent output is left out."""
        outputs: dict[str, Tensor] = {}
        known: SequenceMark | None = None
        for link in self._demand.outputs:
            tensor, mark = self._tensors[link.tensor]
            if tensor is not None:
                known = mark or known
                outputs[link.name] = tensor if link.rebatch is None else link.rebatch(tensor)
            self._used(link.tensor)
        return InferenceResponse(outputs, known.parameters(of_text=of_text) if known else {})

    def _used(self, name: str) -> None:
        self._uses[name] -= 1
        if not self._uses[name]:
            del self._tensors[name]
