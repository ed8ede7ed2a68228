"""From the configuration of an ensemble to what calls the models of its steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Hashable, Mapping, Sequence

from penstock.core.config import EnsembleStep, ModelConfig
from penstock.core.request import ANY_VERSION
from penstock.inflight.inference import Inference
from penstock.models.config.validation.composition import Parts
from penstock.models.serving.loaded_model import LoadedModel
from penstock.scheduling.ensembles.plan import EnsemblePlan, MappedTensor, PlannedStep, Rebatch
from penstock.scheduling.ensembles.scheduler import EnsembleScheduler

FindModel = Callable[[str, int], LoadedModel]


def compose(
    config: ModelConfig, find: FindModel
) -> tuple[Sequence[Composition], EnsembleScheduler]:
    """What runs an ensemble: over the models that serve now, which do not stop before it does.

    `config` is composed already.
    """
    assert config.ensemble_scheduling is not None
    steps = config.ensemble_scheduling.step
    parts = [find(step.model_name, step.model_version) for step in steps]
    sharing = frozenset(part.config.name for part in parts if part.takes_device_tensors)
    plan = ensemble_plan(config, {part.config.name: part.config for part in parts}, sharing)
    limit = config.ensemble_scheduling.max_inflight_requests
    return [Composition(config.name, parts)], EnsembleScheduler(plan, parts, limit)


def part_names(config: ModelConfig) -> list[str]:
    """The models of an ensemble's steps, each once; none for other models."""
    scheduling = config.ensemble_scheduling
    return list(dict.fromkeys(step.model_name for step in scheduling.step)) if scheduling else []


class Composition:
    """The models of an ensemble in the place of its instance: it is as well as they are."""

    serial = False
    passive = False
    caller = None
    signature: Hashable = ()

    def __init__(self, name: str, parts: Sequence[LoadedModel]) -> None:
        self.name = name
        self.on_available: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self._parts = list(dict.fromkeys(parts))
        for part in self._parts:
            part.retain()

    @property
    def alive(self) -> bool:
        """Always: whether a step's model can serve, it says itself."""
        return True

    available = alive

    @property
    def memory(self) -> object | None:
        return self

    @property
    def lost(self) -> bool:
        return any(part.loss for part in self._parts)

    @property
    def why_unavailable(self) -> str:
        return "; ".join(part.loss for part in self._parts if part.loss)

    async def start(self) -> None:
        """The parts are started already."""

    async def healthy(self) -> bool:
        return all(await asyncio.gather(*(part.ready() for part in self._parts)))

    def metrics(self) -> Mapping[str, float]:
        return {}

    async def answered(self) -> None:
        """Nothing is given to it."""

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        raise AssertionError("an ensemble executes nothing itself")

    async def stop(self) -> None:
        """Let the parts go."""
        parts, self._parts = self._parts, []
        for part in parts:
            part.release()


def ensemble_plan(
    config: ModelConfig, parts: Parts, sharing: frozenset[str] = frozenset()
) -> EnsemblePlan:
    """The steps of an ensemble, with the changes of shape between models that batch and others.

    Between models in `sharing` tensors may stay on a device.
    """
    assert config.ensemble_scheduling is not None
    steps = config.ensemble_scheduling.step
    batched = {tensor.name: config.max_batch_size > 0 for tensor in config.input}
    for step in steps:
        batches = parts[step.model_name].max_batch_size > 0
        batched.update(dict.fromkeys(step.output_map.values(), batches))
    outputs = []
    for output in config.output:
        dims = output.dims if output.reshape is None else output.reshape.shape
        rebatch = _rebatch(dims, config, batched[output.name])
        outputs.append(MappedTensor(output.name, output.name, rebatch))
    host = {output.name for output in config.output}
    for step in steps:
        if step.model_name not in sharing:
            host.update(step.input_map.values(), step.output_map.values())
    return EnsemblePlan(
        config.name,
        tuple(_step(step, parts[step.model_name], batched, host) for step in steps),
        tuple(outputs),
        tuple(tensor.name for tensor in config.input if tensor.optional),
        config.decoupled,
    )


def _step(
    step: EnsembleStep, part: ModelConfig, batched: Mapping[str, bool], host: Container[str]
) -> PlannedStep:
    inputs = (
        MappedTensor(name, tensor, _rebatch(part.inputs_by_name[name].dims, part, batched[tensor]))
        for name, tensor in step.input_map.items()
    )
    outputs = (MappedTensor(name, tensor) for name, tensor in step.output_map.items())
    version = "" if step.model_version == ANY_VERSION else str(step.model_version)
    on_device = frozenset(n for n, tensor in step.output_map.items() if tensor not in host)
    return PlannedStep(
        step.model_name, version, tuple(inputs), tuple(outputs), part.decoupled, on_device
    )


def _rebatch(dims: tuple[int, ...], taker: ModelConfig, batched: bool) -> Rebatch | None:
    batches = taker.max_batch_size > 0
    return None if batches is batched else Rebatch(dims, batches)
