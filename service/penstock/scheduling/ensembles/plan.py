"""The dataflow graph of an ensemble, fixed at load; and waves, the state of a pass through it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.core.errors import InvalidRequestError
from penstock.core.request import InferenceResponse, Parameters
from penstock.core.tensor import Tensor

logger = logging.getLogger(__name__)

_KEPT_SUBGRAPHS = 64


@dataclass(frozen=True, slots=True)
class Rebatch:
    """Adds or removes the batch dimension between models of which one batches (contract E-05).

    `dims` are those of the consumer, without a batch dimension; `batched` says whether it batches.
    Only a batch dimension of 1 is added or removed.
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
    """A tensor by its `name` in a model, and by its name in the ensemble, `tensor`."""

    name: str
    tensor: str
    rebatch: Rebatch | None = None


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One model of an ensemble. A `decoupled` one may send any number of responses.

    `on_device` names outputs, as the model does, whose consumers all share its device.
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
        # Used in every call, so computed once: the ensemble's tensors it consumes, and its outputs.
        tensors = dict.fromkeys(link.tensor for link in self.inputs)
        object.__setattr__(self, "tensors", tuple(tensors))
        object.__setattr__(self, "requested", tuple(link.name for link in self.outputs))


@dataclass(frozen=True, slots=True)
class Subgraph:
    """The subgraph that has to run for some of an ensemble's outputs (contract E-18).

    `consumers` are the steps that consume a tensor, `uses` its reference count over steps and the
    response, and `missing` the number of tensors that each step needs.
    """

    outputs: tuple[MappedTensor, ...]
    consumers: Mapping[str, tuple[int, ...]]
    uses: Mapping[str, int]
    missing: tuple[int, ...]


@dataclass(slots=True)
class EnsemblePlan:
    """The dataflow graph: steps, and the ensemble's `outputs`; `optional` inputs may be absent."""

    name: str
    steps: tuple[PlannedStep, ...]
    outputs: tuple[MappedTensor, ...]
    optional: tuple[str, ...] = ()
    decoupled: bool = False
    _subgraphs: dict[frozenset[str], Subgraph] = field(default_factory=dict)

    def subgraph(self, requested: Iterable[str]) -> Subgraph:
        """The subgraph for the outputs that a request names; no name means all."""
        wanted = frozenset(requested)
        found = self._subgraphs.get(wanted)
        if found is None:
            if len(self._subgraphs) >= _KEPT_SUBGRAPHS:
                self._subgraphs.clear()
            found = self._subgraphs[wanted] = self._build_subgraph(wanted)
        return found

    def _build_subgraph(self, wanted: frozenset[str]) -> Subgraph:
        outputs = tuple(o for o in self.outputs if not wanted or o.tensor in wanted)
        needed = self._needed(o.tensor for o in outputs)
        consumers: dict[str, tuple[int, ...]] = {}
        for number in needed:
            for tensor in self.steps[number].tensors:
                consumers[tensor] = (*consumers.get(tensor, ()), number)
        uses = Counter(o.tensor for o in outputs)
        uses.update({tensor: len(steps) for tensor, steps in consumers.items()})
        missing = tuple(len(step.tensors) for step in self.steps)
        return Subgraph(outputs, consumers, dict(uses), missing)

    def _needed(self, tensors: Iterable[str]) -> list[int]:
        """The steps that `tensors` depend on."""
        producers = {o.tensor: n for n, step in enumerate(self.steps) for o in step.outputs}
        needed: set[int] = set()
        todo = list(tensors)
        while todo:
            number = producers.get(todo.pop())
            if number is not None and number not in needed:
                needed.add(number)
                todo += self.steps[number].tensors
        return sorted(needed)


class Wave:
    """One pass through the graph: the tensors that belong together, and the steps that miss some.

    The first wave of a request holds its inputs; each response of a decoupled step starts a wave of
    its own. The outputs of other steps are added to the wave of their inputs. `None` stands for an
    absent optional tensor (contract E-08). A tensor is dropped after its last use (E-19).
    """

    __slots__ = ("_missing", "_open", "_subgraph", "_tensors", "_uses")

    def __init__(self, subgraph: Subgraph) -> None:
        self._subgraph = subgraph
        self._missing = list(subgraph.missing)
        self._uses = dict(subgraph.uses)
        self._tensors: dict[str, tuple[Tensor | None, SequenceMark | None]] = {}
        self._open = len(subgraph.outputs)

    @property
    def complete(self) -> bool:
        """Whether every requested output is present."""
        return not self._open

    @property
    def held(self) -> int:
        """The number of tensors that are still in use."""
        return len(self._tensors)

    def add(
        self, tensors: Mapping[str, Tensor | None], mark: SequenceMark | None = None
    ) -> list[int]:
        """Add tensors; returns the numbers of the steps that are ready now, each once."""
        ready: list[int] = []
        subgraph = self._subgraph
        for name, tensor in tensors.items():
            if name not in self._uses:
                continue  # unused
            self._tensors[name] = (tensor, mark)
            consumers = subgraph.consumers.get(name, ())
            if subgraph.uses[name] > len(consumers):
                self._open -= 1
            for step in consumers:
                self._missing[step] -= 1
                if not self._missing[step]:
                    ready.append(step)
        return ready

    def take_inputs(self, step: PlannedStep) -> tuple[dict[str, Tensor], SequenceMark | None]:
        """Take the inputs of a ready step, and the mark of their sequence, if any has one.

        Where they disagree, the first counts.
        """
        inputs: dict[str, Tensor] = {}
        known: SequenceMark | None = None
        for link in step.inputs:
            tensor, mark = self._tensors[link.tensor]
            known = known or mark
            if tensor is not None:
                inputs[link.name] = tensor if link.rebatch is None else link.rebatch(tensor)
        for name in step.tensors:
            self._count_use(name)
        return inputs, known

    def response(self, *, of_text: bool) -> InferenceResponse:
        """The response of a complete wave; an absent output is left out."""
        outputs: dict[str, Tensor] = {}
        known: SequenceMark | None = None
        for link in self._subgraph.outputs:
            tensor, mark = self._tensors[link.tensor]
            if tensor is not None:
                known = mark or known
                outputs[link.name] = tensor if link.rebatch is None else link.rebatch(tensor)
            else:
                logger.debug("Composing models did not output tensor %s", link.tensor)
            self._count_use(link.tensor)
        return InferenceResponse(outputs, known.parameters(of_text=of_text) if known else {})

    def _count_use(self, name: str) -> None:
        self._uses[name] -= 1
        if not self._uses[name]:
            del self._tensors[name]


_NAMES = frozenset(("sequence_id", "sequence_start", "sequence_end"))


@dataclass(frozen=True, slots=True)
class SequenceMark:
    """Correlation id and flags of a sequence: of the request, or of a step's response."""

    correlation_id: int | str = 0
    start: bool = False
    end: bool = False

    def updated(self, parameters: Parameters) -> SequenceMark:
        """This mark, overridden by a response's parameters; a flag that is not given is off."""
        if not parameters or _NAMES.isdisjoint(parameters):
            return self
        known = parameters.get("sequence_id", self.correlation_id)
        if isinstance(known, bool) or not isinstance(known, int | str):
            raise InvalidRequestError(
                "expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or "
                "TRITONSERVER_PARAMETER_STRING"
            )
        return SequenceMark(
            known, _flag(parameters, "sequence_start"), _flag(parameters, "sequence_end")
        )

    def parameters(self, *, of_text: bool) -> Parameters:
        """The response parameters of this mark; `of_text` if the request's id is a string."""
        known = self.correlation_id
        if isinstance(known, str) is not of_text:
            known = "" if of_text else 0
        if isinstance(known, int) and known >= 1 << 63:
            known -= 1 << 64  # parameters are signed
        return {"sequence_id": known, "sequence_start": self.start, "sequence_end": self.end}


def _flag(parameters: Parameters, name: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise InvalidRequestError(f"expect parameter '{name}' to be TRITONSERVER_PARAMETER_BOOL")
    return value
