"""From a model's configuration to its scheduler: direct, dynamic, sequence or ensemble."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import partial
from pathlib import Path

from penstock.core.config import (
    EnsembleStep,
    ModelConfig,
    SequenceBatching,
    StrategyDirect,
    StrategyOldest,
)
from penstock.core.request import ANY_VERSION
from penstock.models.config.validation.composition import Parts
from penstock.models.repository.implicit_state_files import read_states
from penstock.models.serving.loaded_model import LoadedModel
from penstock.scheduling import Scheduler
from penstock.scheduling.batching.dynamic_batcher import BatcherSettings, DynamicBatcher
from penstock.scheduling.batching.forming import BatchPolicy, Signature, signature_for
from penstock.scheduling.direct import DirectScheduler
from penstock.scheduling.ensembles.plan import EnsemblePlan, MappedTensor, PlannedStep, Rebatch
from penstock.scheduling.ensembles.scheduler import EnsembleScheduler
from penstock.scheduling.first_batch import FirstBatch
from penstock.scheduling.sequences import SequenceBatcher
from penstock.scheduling.sequences.admission import RequestPreparation
from penstock.scheduling.sequences.batcher import SequencePolicy
from penstock.scheduling.sequences.controls import Controls
from penstock.scheduling.sequences.direct import DirectPolicy, DirectStrategy
from penstock.scheduling.sequences.instance import ObservedInstance, RowInstance, StatefulInstance
from penstock.scheduling.sequences.strategy import MakeStrategy, OldestStrategy, StrategyContext


def make_scheduler(
    config: ModelConfig, model_path: Path, instances: Sequence[StatefulInstance]
) -> Scheduler:
    """The scheduler over a model's instances. Reads the files of initial states, if any."""
    if config.sequence_batching is not None:
        return sequence_batcher(config, model_path, instances)
    if config.dynamic_batching is None:
        return DirectScheduler(instances)
    return DynamicBatcher(BatcherSettings.from_config(config), instances)


def ensemble_scheduler(config: ModelConfig, models: Sequence[LoadedModel]) -> EnsembleScheduler:
    """The scheduler of an ensemble whose configuration is composed; a model for each step."""
    assert config.ensemble_scheduling is not None
    sharing = frozenset(model.config.name for model in models if model.takes_device_tensors)
    plan = ensemble_plan(config, {model.config.name: model.config for model in models}, sharing)
    return EnsembleScheduler(plan, models, config.ensemble_scheduling.max_inflight_requests)


# -- sequences ---------------------------------------------------------------------------------


def sequence_batcher(
    config: ModelConfig, model_path: Path, instances: Sequence[StatefulInstance]
) -> SequenceBatcher:
    """The scheduler of a model with `sequence_batching`; strategy direct by default (S-06)."""
    batching = config.sequence_batching
    assert batching is not None
    controls = Controls(batching, batched=config.max_batch_size > 0)
    rows = max(1, config.max_batch_size)
    if batching.oldest is not None:
        slots = batching.oldest.max_candidate_sequences
        make: MakeStrategy = partial(_oldest, batching.oldest, rows, _signature(config))
    else:
        slots = rows
        direct = _direct_policy(batching.direct or StrategyDirect(), rows, _signature(config))
        make = partial(_direct, direct, controls)
    return SequenceBatcher(
        _policy(config, batching, slots if slots > 0 else rows),
        RequestPreparation(controls, read_states(config, model_path)),
        instances,
        make,
    )


def _policy(config: ModelConfig, batching: SequenceBatching, slots: int) -> SequencePolicy:
    return SequencePolicy(
        model=config.name,
        slots=slots,
        max_idle=batching.max_sequence_idle_microseconds / 1e6,
        iterative=batching.iterative_sequence,
        decoupled=config.decoupled,
        first_batch=FirstBatch.from_environment() if batching.oldest is None else None,
    )


def _direct_policy(direct: StrategyDirect, rows: int, signature: Signature) -> DirectPolicy:
    delay = direct.max_queue_delay_microseconds / 1e6
    return DirectPolicy(rows, signature, delay, direct.minimum_slot_utilization)


def _signature(config: ModelConfig) -> Signature:
    """The batch signature: that of the inputs, and the shapes of states where they vary."""
    assert config.sequence_batching is not None
    varying = [s.input_name for s in config.sequence_batching.state if -1 in s.dims]
    of_inputs = signature_for(config)
    if not varying:
        return of_inputs
    return lambda request: (of_inputs(request), *(request.inputs[n].shape for n in varying))


def _oldest(
    oldest: StrategyOldest, rows: int, signature: Signature, place: StrategyContext
) -> tuple[ObservedInstance, OldestStrategy]:
    policy = BatchPolicy(
        max_batch_size=rows,
        preferred=frozenset(oldest.preferred_batch_size),
        max_queue_delay=oldest.max_queue_delay_microseconds / 1e6,
    )
    instance = ObservedInstance(place.instance, place.executed)
    ordered = oldest.preserve_ordering
    settings = BatcherSettings(policy, signature=signature, preserve_ordering=ordered)
    return instance, OldestStrategy(settings, instance, place.source)


def _direct(
    policy: DirectPolicy, controls: Controls, place: StrategyContext
) -> tuple[ObservedInstance, DirectStrategy]:
    instance = RowInstance(place.instance, place.executed, controls)
    return instance, DirectStrategy(policy, instance, place.slots, place.table, place.source)


# -- ensembles ---------------------------------------------------------------------------------


def ensemble_plan(
    config: ModelConfig, parts: Parts, sharing: frozenset[str] = frozenset()
) -> EnsemblePlan:
    """The steps of an ensemble, with reshapes between models that batch and those that do not.

    Tensors between models in `sharing` may stay on a device.
    """
    assert config.ensemble_scheduling is not None
    steps = config.ensemble_scheduling.step
    batched = {tensor.name: config.max_batch_size > 0 for tensor in config.input}
    for step in steps:
        batches = parts[step.model].max_batch_size > 0
        batched.update(dict.fromkeys(step.output_map.values(), batches))
    outputs = []
    for output in config.output:
        dims = output.dims if output.reshape is None else output.reshape.shape
        rebatch = _rebatch(dims, config, batched[output.name])
        outputs.append(MappedTensor(output.name, output.name, rebatch))
    host = {output.name for output in config.output}
    for step in steps:
        if step.model not in sharing:
            host.update(step.input_map.values(), step.output_map.values())
    return EnsemblePlan(
        config.name,
        tuple(_step(step, parts[step.model], batched, host) for step in steps),
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
        step.model, version, tuple(inputs), tuple(outputs), part.decoupled, on_device
    )


def _rebatch(dims: tuple[int, ...], taker: ModelConfig, batched: bool) -> Rebatch | None:
    batches = taker.max_batch_size > 0
    return None if batches is batched else Rebatch(dims, batches)
