"""The plan of an ensemble, fixed at load: its steps and tensors; and which steps may run next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.core.errors import InvalidRequestError
from penstock.core.request import InferenceResponse, Parameters
from penstock.core.tensor import Tensor

_KEPT_DEMANDS = 64


@dataclass(frozen=True, slots=True)
class Rebatch:
    """Between a model that batches and one that does not (contract E-05).

    `dims` are those of the side that takes the tensor, without a batch dimension; `batched` tells
    whether that side batches. The batch dimension comes or goes only where it is one row.
    """

    dims: tuple[int, ...]
    batched: bool

    def __call__(self, tensor: Tensor) -> Tensor:
        fits = self._fits(tensor.shape)
        if self.batched and fits:
            return tensor.reshaped((1, *tensor.shape))
        if not self.batched and not fits and tensor.shape[:1] == (1,):
            return tensor.reshaped(tensor.shape[1:])
        return tensor

    def _fits(self, shape: Sequence[int]) -> bool:
        return len(shape) == len(self.dims) and all(
            dim in (-1, size) for dim, size in zip(self.dims, shape, strict=True)
        )


@dataclass(frozen=True, slots=True)
class MappedTensor:
    """A tensor by the name that a model has for it, and by the one that the ensemble has."""

    name: str
    tensor: str
    rebatch: Rebatch | None = None


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One model of an ensemble. A `decoupled` one may answer any number of times.

    `on_device` are outputs, by the model's names, that only models take which share devices.
    """

    model: str
    version: str
    inputs: tuple[MappedTensor, ...]
    outputs: tuple[MappedTensor, ...]
    decoupled: bool = False
    on_device: frozenset[str] = frozenset()
    tensors: tuple[str, ...] = field(init=False)
    requested: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        # Asked for with every call: the ensemble's tensors that are taken, the outputs wanted.
        tensors = dict.fromkeys(link.tensor for link in self.inputs)
        object.__setattr__(self, "tensors", tuple(tensors))
        object.__setattr__(self, "requested", tuple(link.name for link in self.outputs))


@dataclass(frozen=True, slots=True)
class Subgraph:
    """The part of an ensemble that has to run for some of its outputs (contract E-18).

    `takers` are the steps that take a tensor, `uses` how often it is wanted by steps and by the
    response, and `lacking` how many tensors each step waits for.
    """

    outputs: tuple[MappedTensor, ...]
    takers: Mapping[str, tuple[int, ...]]
    uses: Mapping[str, int]
    lacking: tuple[int, ...]


@dataclass(slots=True)
class EnsemblePlan:
    """The steps of an ensemble; `outputs` are its own by name, `optional` inputs may be absent."""

    name: str
    steps: tuple[PlannedStep, ...]
    outputs: tuple[MappedTensor, ...]
    optional: tuple[str, ...] = ()
    decoupled: bool = False
    _demands: dict[frozenset[str], Subgraph] = field(default_factory=dict)

    def demand(self, requested: Iterable[str]) -> Subgraph:
        """What has to run for the outputs that a request names; no name means all."""
        wanted = frozenset(requested)
        found = self._demands.get(wanted)
        if found is None:
            if len(self._demands) >= _KEPT_DEMANDS:
                self._demands.clear()
            found = self._demands[wanted] = self._work_out(wanted)
        return found

    def _work_out(self, wanted: frozenset[str]) -> Subgraph:
        outputs = tuple(o for o in self.outputs if not wanted or o.tensor in wanted)
        needed = self._needed(o.tensor for o in outputs)
        takers: dict[str, tuple[int, ...]] = {}
        for number in needed:
            for tensor in self.steps[number].tensors:
                takers[tensor] = (*takers.get(tensor, ()), number)
        uses = Counter(o.tensor for o in outputs)
        uses.update({tensor: len(steps) for tensor, steps in takers.items()})
        lacking = tuple(len(step.tensors) for step in self.steps)
        return Subgraph(outputs, takers, dict(uses), lacking)

    def _needed(self, tensors: Iterable[str]) -> list[int]:
        """The steps without which one of `tensors` would not be made."""
        makers = {o.tensor: n for n, step in enumerate(self.steps) for o in step.outputs}
        needed: set[int] = set()
        todo = list(tensors)
        while todo:
            number = makers.get(todo.pop())
            if number is not None and number not in needed:
                needed.add(number)
                todo += self.steps[number].tensors
        return sorted(needed)


class Wave:
    """Tensors that belong together, and the steps that wait for some of them.

    The first wave of a request holds its inputs; each response of a decoupled step is a wave of
    its own. Steps add what they make of a wave to that wave. `None` stands for an optional tensor
    that is absent (contract E-08). A tensor is dropped with its last use (E-19).
    """

    __slots__ = ("_demand", "_lacking", "_open", "_tensors", "_uses")

    def __init__(self, demand: Subgraph) -> None:
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

    def take(self, step: PlannedStep) -> tuple[dict[str, Tensor], SequenceMark | None]:
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


_NAMES = frozenset(("sequence_id", "sequence_start", "sequence_end"))


@dataclass(frozen=True, slots=True)
class SequenceMark:
    """Correlation id and flags: of the request, or what a step's response says instead."""

    correlation_id: int | str = 0
    start: bool = False
    end: bool = False

    def after(self, said: Parameters) -> SequenceMark:
        """The mark of a response to a request with this mark; a flag that is not said is off."""
        if not said or _NAMES.isdisjoint(said):
            return self
        known = said.get("sequence_id", self.correlation_id)
        if isinstance(known, bool) or not isinstance(known, int | str):
            raise InvalidRequestError(
                "expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or "
                "TRITONSERVER_PARAMETER_STRING"
            )
        return SequenceMark(known, _flag(said, "sequence_start"), _flag(said, "sequence_end"))

    def parameters(self, *, of_text: bool) -> Parameters:
        """As parameters of the ensemble's response; `of_text` when its request has a text id."""
        known = self.correlation_id
        if isinstance(known, str) is not of_text:
            known = "" if of_text else 0
        if isinstance(known, int) and known >= 1 << 63:
            known -= 1 << 64  # parameters are signed
        return {"sequence_id": known, "sequence_start": self.start, "sequence_end": self.end}


def _flag(said: Parameters, name: str) -> bool:
    value = said.get(name, False)
    if not isinstance(value, bool):
        raise InvalidRequestError(f"expect parameter '{name}' to be TRITONSERVER_PARAMETER_BOOL")
    return value
