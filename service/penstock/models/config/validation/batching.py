"""Rules about dynamic and sequence batching: sizes, priorities, order and control tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from penstock.core.config import (
    Control,
    ControlKind,
    DynamicBatching,
    ModelConfig,
    QueuePolicy,
    SequenceBatching,
    TimeoutAction,
)
from penstock.core.tensor import DataType

_ID_TYPES = (DataType.UINT64, DataType.INT64, DataType.UINT32, DataType.INT32, DataType.BYTES)
_PAIRS = ("int32_false_true", "fp32_false_true", "bool_false_true")


def batching_problems(config: ModelConfig) -> Iterator[str]:
    """Problems of `dynamic_batching`."""
    batching = config.dynamic_batching
    if batching is None:
        return
    what = "dynamic batching preferred size"
    yield from _size_problems(batching.preferred_batch_size, config, what)
    for problem in (*_priority_problems(batching), *_ordering_problems(batching)):
        yield f"{problem} for {config.name}"


def _size_problems(sizes: Iterable[int], config: ModelConfig, what: str) -> Iterator[str]:
    """Preferred batch sizes lie between 1 and the model's largest."""
    for size in sizes:
        if size <= 0:
            yield f"{what} must be positive for {config.name}"
        if size > config.max_batch_size:
            yield f"{what} must be <= max batch size for {config.name}"


def _priority_problems(batching: DynamicBatching) -> Iterator[str]:
    levels = batching.priority_levels
    if levels == 0:
        return
    if not 1 <= batching.default_priority_level <= levels:
        yield f"default priority level must be in range [1, {levels}]"
    if not all(1 <= level <= levels for level in batching.priority_queue_policy):
        yield f"priority queue policy must have priority level in range [1, {levels}]"


def _ordering_problems(batching: DynamicBatching) -> Iterator[str]:
    """Preserving the order of responses rules out priorities and delayed timeouts."""
    if not batching.preserve_ordering:
        return
    if batching.priority_levels > 1:
        yield "Only one priority level is allowed when 'preserve_ordering' is true"
    policies = (batching.default_queue_policy, *batching.priority_queue_policy.values())
    if any(_delays(policy) for policy in policies):
        yield "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true"


def _delays(policy: QueuePolicy | None) -> bool:
    return (
        policy is not None
        and policy.default_timeout_microseconds != 0
        and policy.timeout_action is TimeoutAction.DELAY
    )


def sequence_problems(config: ModelConfig) -> Iterator[str]:
    """Problems of `sequence_batching`."""
    batching = config.sequence_batching
    if batching is None:
        return
    for problem in (*_name_problems(batching), *_control_problems(batching)):
        yield f"{problem} for {config.name}"
    yield from _id_type_problems(batching, config.name)
    if batching.oldest is not None:
        what = "sequence batching preferred batch size"
        yield from _size_problems(batching.oldest.preferred_batch_size, config, what)
    if batching.direct is not None and not 0 <= batching.direct.minimum_slot_utilization <= 1:
        yield (
            "sequence batching minimum slot utilization must be in range (0.0, 1.0] "
            f"for {config.name}"
        )


def _name_problems(batching: SequenceBatching) -> Iterator[str]:
    names = Counter(tensor.name for tensor in batching.control_input)
    if "" in names:
        yield "sequence batching control tensor must have a name"
    for name, count in names.items():
        if count > 1:
            yield (
                f"sequence batching control tensor '{name}' is specified for multiple control kinds"
            )


def _control_problems(batching: SequenceBatching) -> Iterator[str]:
    controls = [control for tensor in batching.control_input for control in tensor.control]
    kinds = Counter(control.kind for control in controls)
    for control in controls:
        if kinds[control.kind] > 1:
            yield f"sequence batching specifies multiple {control.kind} tensors"
        if control.kind is ControlKind.CONTROL_SEQUENCE_CORRID:
            yield from _id_problems(control)
        else:
            yield from _signal_problems(control)


def _id_problems(control: Control) -> Iterator[str]:
    if any(getattr(control, pair) for pair in _PAIRS):
        yield (
            "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' "
            f"or 'bool_false_true' for {control.kind}"
        )


def _id_type_problems(batching: SequenceBatching, name: str) -> Iterator[str]:
    for tensor in batching.control_input:
        for control in tensor.control:
            is_id = control.kind is ControlKind.CONTROL_SEQUENCE_CORRID
            if is_id and control.data_type not in _ID_TYPES:
                yield (
                    f"unexpected data type for control {control.kind} for {name}. Allowed data "
                    "types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING"
                )


def _signal_problems(control: Control) -> Iterator[str]:
    given = [pair for pair in _PAIRS if getattr(control, pair)]
    if not given:
        yield (
            "sequence batching must specify either 'int32_false_true', 'fp32_false_true' "
            f"or 'bool_false_true' for {control.kind}"
        )
    if len(given) > 1:
        yield (
            "sequence batching specifies more than one from 'int32_false_true', "
            f"'fp32_false_true' and 'bool_false_true' for {control.kind}"
        )
    for pair in given:
        if len(getattr(control, pair)) != 2:
            yield (
                f"sequence batching control '{pair}' must have exactly 2 entries for {control.kind}"
            )
