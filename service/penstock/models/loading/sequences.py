"""From a model's configuration to the scheduler of its sequences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from penstock.core.config import ModelConfig, SequenceBatching, StrategyDirect, StrategyOldest
from penstock.models.repository.implicit_state_files import read_states
from penstock.scheduling.batching.compatibility import Signature, signature_for
from penstock.scheduling.batching.forming import BatchPolicy
from penstock.scheduling.batching.settings import BatcherSettings
from penstock.scheduling.sequences import SequenceBatcher
from penstock.scheduling.sequences.admission import RequestPreparation
from penstock.scheduling.sequences.batcher import SequencePolicy
from penstock.scheduling.sequences.controls import Controls
from penstock.scheduling.sequences.direct import DirectPolicy, DirectStrategy
from penstock.scheduling.sequences.instance import ObservedInstance, RowInstance, StatefulInstance
from penstock.scheduling.sequences.strategy import MakeStrategy, OldestStrategy, StrategyContext


def sequence_batcher(
    config: ModelConfig, model_path: Path, instances: Sequence[StatefulInstance]
) -> SequenceBatcher:
    """The scheduler of a model with `sequence_batching`; direct unless oldest is chosen (S-06)."""
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
    )


def _direct_policy(direct: StrategyDirect, rows: int, signature: Signature) -> DirectPolicy:
    delay = direct.max_queue_delay_microseconds / 1e6
    return DirectPolicy(rows, signature, delay, direct.minimum_slot_utilization)


def _signature(config: ModelConfig) -> Signature:
    """What is equal for all requests of a batch: the shapes of states too, where they vary."""
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
