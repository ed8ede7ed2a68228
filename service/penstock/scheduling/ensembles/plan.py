"""What an ensemble does with a request: its steps and the tensors between them, fixed at load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
class Link:
    """A tensor by the name that a model has for it, and by the one that the ensemble has."""

    name: str
    tensor: str
    rebatch: Rebatch | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One model of an ensemble. A `decoupled` one may answer any number of times.

    `on_device` are outputs, by the model's names, that only models take which share devices.
    """

    model: str
    version: str
    inputs: tuple[Link, ...]
    outputs: tuple[Link, ...]
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
class Demand:
    """The part of an ensemble that has to run for some of its outputs (contract E-18).

    `takers` are the steps that take a tensor, `uses` how often it is wanted by steps and by the
    response, and `lacking` how many tensors each step waits for.
    """

    outputs: tuple[Link, ...]
    takers: Mapping[str, tuple[int, ...]]
    uses: Mapping[str, int]
    lacking: tuple[int, ...]


@dataclass(slots=True)
class EnsemblePlan:
    """The steps of an ensemble; `outputs` are its own by name, `optional` inputs may be absent."""

    name: str
    steps: tuple[Step, ...]
    outputs: tuple[Link, ...]
    optional: tuple[str, ...] = ()
    decoupled: bool = False
    _demands: dict[frozenset[str], Demand] = field(default_factory=dict)

    def demand(self, requested: Iterable[str]) -> Demand:
        """What has to run for the outputs that a request names; no name means all."""
        wanted = frozenset(requested)
        found = self._demands.get(wanted)
        if found is None:
            if len(self._demands) >= _KEPT_DEMANDS:
                self._demands.clear()
            found = self._demands[wanted] = self._work_out(wanted)
        return found

    def _work_out(self, wanted: frozenset[str]) -> Demand:
        outputs = tuple(o for o in self.outputs if not wanted or o.tensor in wanted)
        needed = self._needed(o.tensor for o in outputs)
        takers: dict[str, tuple[int, ...]] = {}
        for number in needed:
            for tensor in self.steps[number].tensors:
                takers[tensor] = (*takers.get(tensor, ()), number)
        uses = Counter(o.tensor for o in outputs)
        uses.update({tensor: len(steps) for tensor, steps in takers.items()})
        lacking = tuple(len(step.tensors) for step in self.steps)
        return Demand(outputs, takers, dict(uses), lacking)

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
