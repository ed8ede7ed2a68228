"""Ensembles that a load refuses, by what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping

from models.checking.refused_rows import Row


def model(input: str = "IN", output: str = "OUT", more: str = "") -> str:
    """A model with one input and one output: name, or name:type, or name:type and dims."""
    given, made = _tensor(input), _tensor(output)
    return f'backend: "identity" {more} input [ {given} ] output [ {made} ]'


def _tensor(text: str) -> str:
    name, _, kind = text.partition(":")
    kind, _, dims = kind.partition(" ")
    return f'{{ name: "{name}" data_type: TYPE_{kind or "FP32"} dims: [ {dims or 4} ] }}'


def step(model: str, source: str, target: str, version: int = -1, **maps: str) -> str:
    """A step over the model's tensors IN and OUT, or those that `maps` name."""
    given, made = maps.get("input", "IN"), maps.get("output", "OUT")
    return (
        f'{{ model_name: "{model}" model_version: {version}'
        f' input_map {{ key: "{given}" value: "{source}" }}'
        f' output_map {{ key: "{made}" value: "{target}" }} }}'
    )


def ensemble(*steps: str, input: str = "X", output: str = "Y", more: str = "") -> str:
    """An ensemble from one tensor to another."""
    return (
        f'platform: "ensemble" {more} input [ {_tensor(input)} ] output [ {_tensor(output)} ]'
        f" ensemble_scheduling {{ step [ {', '.join(steps)} ] }}"
    )


_ONE = step("one", "X", "Y")
_TWO = (step("one", "X", "Z"), step("two", "Z", "Y"))
_DECOUPLED = (
    'backend: "repeat" model_transaction_policy { decoupled: true } input ['
    ' { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] },'
    ' { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] },'
    ' { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] } ] output ['
    ' { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] },'
    ' { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] } ]'
)
_SEQUENCES = model(more="max_batch_size: 4 sequence_batching { }")


def _row(config: str, **others: str) -> Row:
    return Row(config, others=others, name="e")


ROWS: Mapping[str, Row] = {
    "files by GPU": _row(
        ensemble(_ONE, more='cc_model_filenames { key: "7.5" value: "other" }'), one=model()
    ),
    "a namespace": _row(
        ensemble(_ONE.replace("model_version", 'model_namespace: "other" model_version')),
        one=model(),
    ),
    "a step without a model": _row(ensemble(_ONE)),
    "a ring": _row(
        ensemble(step("f", "X", "Y", input="X", output="Y")),
        f=ensemble(step("e", "X", "Y", input="X", output="Y")),
    ),
    "a version that is not loaded": _row(ensemble(step("one", "X", "Y", 7)), one=model()),
    "a model that does not load": _row(ensemble(_ONE), one=model(output="OUT:INT8")),
    "a model that cannot be read": _row(ensemble(_ONE), one="nonsense"),
    "types": _row(ensemble(*_TWO), one=model(), two=model("IN:INT8", "OUT:INT8")),
    "shapes": _row(ensemble(*_TWO), one=model(), two=model("IN:FP32 5", "OUT:FP32 5")),
    "an input that is not there": _row(ensemble(step("one", "X", "Y", input="I")), one=model()),
    "an output that is not there": _row(ensemble(step("one", "X", "Y", output="O")), one=model()),
    "an input without a source": _row(
        ensemble(_ONE),
        one='backend: "identity" input [ { name: "IN" data_type: TYPE_FP32 dims: 4 }, { name: "J"'
        ' data_type: TYPE_FP32 dims: 4 } ] output [ { name: "OUT" data_type: TYPE_FP32 dims: 4 }, '
        '{ name: "P" data_type: TYPE_FP32 dims: 4 } ]',
    ),
    "batches": _row(ensemble(_ONE, more="max_batch_size: 8"), one=model(more="max_batch_size: 4")),
    "cached sequences": _row(
        ensemble(_ONE, more="max_batch_size: 4 response_cache { enable: true }"), one=_SEQUENCES
    ),
    "two decoupled sources": _row(
        'platform: "ensemble" input [ { name: "X" data_type: TYPE_INT32 dims: -1 }, { name: "D"'
        ' data_type: TYPE_UINT32 dims: -1 }, { name: "W" data_type: TYPE_UINT32 dims: 1 } ]'
        ' output [ { name: "Y" data_type: TYPE_INT32 dims: 1 } ] ensemble_scheduling { step ['
        + ", ".join(
            f'{{ model_name: "many" model_version: -1 input_map {{ key: "IN" value: "X" }}'
            f' input_map {{ key: "DELAY" value: "D" }} input_map {{ key: "WAIT" value: "W" }}'
            f' output_map {{ key: "OUT" value: "{target}" }} }}'
            for target in ("A", "B")
        )
        + ', { model_name: "pair" model_version: -1 input_map { key: "IN" value: "A" }'
        ' input_map { key: "J" value: "B" } output_map { key: "OUT" value: "Y" } } ] }',
        many=_DECOUPLED,
        pair='backend: "identity" input [ { name: "IN" data_type: TYPE_INT32 dims: 1 }, { name: "J"'
        ' data_type: TYPE_INT32 dims: 1 } ] output [ { name: "OUT" data_type: TYPE_INT32 dims: 1 },'
        ' { name: "P" data_type: TYPE_INT32 dims: 1 } ]',
    ),
    "labels": _row(
        ensemble(_ONE).replace('{ name: "Y"', '{ name: "Y" label_filename: "labels"'), one=model()
    ),
}
