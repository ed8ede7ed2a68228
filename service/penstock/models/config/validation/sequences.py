"""Rules about sequence batching: control tensors and the strategy's numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from penstock.core.config import Control, ControlKind, ModelConfig, SequenceBatching
from penstock.core.tensor import DataType
from penstock.models.config.validation.batching import size_problems

_ID_TYPES = (DataType.UINT64, DataType.INT64, DataType.UINT32, DataType.INT32, DataType.BYTES)
_PAIRS = ("int32_false_true", "fp32_false_true", "bool_false_true")


def sequence_problems(config: ModelConfig) -> Iterator[str]:
    """The whole of `sequence_batching`."""
    batching = config.sequence_batching
    if batching is None:
        return
    for problem in (*_name_problems(batching), *_control_problems(batching)):
        yield f"{problem} for {config.name}"
    yield from _id_type_problems(batching, config.name)
    if batching.oldest is not None:
        what = "sequence batching preferred batch size"
        yield from size_problems(batching.oldest.preferred_batch_size, config, what)
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
