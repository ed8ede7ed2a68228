"""Autocompletion of a model configuration from its graph (contract AC-04 to AC-06)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.backend import (
    ConfigError,
    DataType,
    DynamicBatching,
    Input,
    ModelConfig,
    ModelLoadError,
    Output,
    TensorReshape,
)
from penstock_backends.tensor_models.graph import Graph, GraphTensor
from penstock_backends.tensor_models.padding import padded_outputs
from penstock_backends.tensor_models.tokenizer import TOKENIZER

DEFAULT_MAX_BATCH_SIZE = "default-max-batch-size"


def needs_completion(config: ModelConfig) -> bool:
    """Whether inputs or outputs are missing, to be completed from the graph."""
    return not (config.input or config.batch_input) or not config.output


def completed(config: ModelConfig, graph: Graph, most_rows: int) -> ModelConfig:
    """`config` with the graph's tensors, batch size and batching where it has none itself.

    `most_rows` is the batch size of a model that takes batches, else 0.
    """
    rows = _max_batch_size(config, graph, most_rows)
    scheduled = config.dynamic_batching or config.sequence_batching
    return replace(
        config,
        max_batch_size=rows,
        input=config.input or _inputs(config, graph, rows),
        output=config.output or _outputs(config, graph, rows),
        dynamic_batching=DynamicBatching()
        if rows > 1 and not scheduled
        else config.dynamic_batching,
    )


def all_rows_vary(graph: Graph) -> bool:
    """Whether the first dimension of all tensors is variable, so that it may be the batch's."""
    return _single(graph) is None


def _single(graph: Graph) -> GraphTensor | None:
    """A tensor whose first dimension is fixed, if there is one, or that has none."""
    return next((tensor for tensor in _tensors(graph) if tensor.dims[:1] != (-1,)), None)


def _max_batch_size(config: ModelConfig, graph: Graph, most_rows: int) -> int:
    if most_rows:
        return config.max_batch_size or (0 if is_whole(config, graph) else most_rows)
    if config.max_batch_size:
        single = _single(graph)
        why = f"; its tensor '{single.name}' has shape {written(single.dims)}" if single else ""
        raise ModelLoadError(
            f"autofill failed for model '{config.name}': model does not support batching while "
            f"non-zero max_batch_size is specified{why}"
        )
    return 0


def _tensors(graph: Graph) -> list[GraphTensor]:
    return [*graph.inputs.values(), *graph.outputs.values()]


def is_whole(config: ModelConfig, graph: Graph) -> bool:
    """Whether a declared tensor has all dimensions of the graph's, so none is the batch's."""
    declared: list[Input | Output] = [*config.input, *config.output]
    ranks = {tensor.name: len(tensor.dims) for tensor in _tensors(graph)}
    return any(len(tensor.backend_dims) == ranks.get(tensor.name) for tensor in declared)


def default_rows(settings: Mapping[str, str]) -> int:
    """The batch size of models that say none, from the backend's settings."""
    text = settings.get(DEFAULT_MAX_BATCH_SIZE, "4")
    if not text.isdecimal():
        raise ConfigError(
            f"backend-config {DEFAULT_MAX_BATCH_SIZE} must be a whole number: '{text}'"
        )
    return int(text)


def _inputs(config: ModelConfig, graph: Graph, rows: int) -> tuple[Input, ...]:
    if config.parameter(TOKENIZER) is not None:
        return (Input("TEXT", DataType.BYTES, dims=(1,) if rows else (-1,)),)
    computed = {name for tensor in config.batch_input for name in tensor.target_name}
    tensors = _unclaimed(graph.inputs.values(), controls(config) | computed)
    return tuple(Input(t.name, t.datatype, **_fields(t, rows)) for t in tensors)


def _outputs(config: ModelConfig, graph: Graph, rows: int) -> tuple[Output, ...]:
    tensors = _unclaimed(graph.outputs.values(), states(config))
    return tuple(Output(t.name, t.datatype, **_fields(t, rows)) for t in tensors)


def _fields(tensor: GraphTensor, rows: int) -> dict[str, Any]:
    return {
        "dims": _dims(tensor, rows),
        "reshape": _reshape(tensor, rows),
        "is_shape_tensor": tensor.is_shape,
        "is_non_linear_format_io": not tensor.is_linear,
    }


def controls(config: ModelConfig) -> set[str]:
    """Control and state inputs, which the sequence batcher feeds."""
    sequences = config.sequence_batching
    if sequences is None:
        return set()
    return {c.name for c in sequences.control_input} | {s.input_name for s in sequences.state}


def states(config: ModelConfig) -> set[str]:
    """State outputs, which the sequence batcher keeps."""
    sequences = config.sequence_batching
    return {state.output_name for state in sequences.state} if sequences else set()


def _unclaimed(tensors: Iterable[GraphTensor], claimed: set[str]) -> list[GraphTensor]:
    return [tensor for tensor in tensors if tensor.name not in claimed]


def written(dims: Iterable[int]) -> str:
    """A shape as it stands in errors."""
    return f"[{','.join(map(str, dims))}]"


def _dims(tensor: GraphTensor, rows: int) -> tuple[int, ...]:
    """The dimensions of one row; a scalar has one element, since a configuration needs dims."""
    return tensor.dims[1 if rows else 0 :] or (1,)


def _reshape(tensor: GraphTensor, rows: int) -> TensorReshape | None:
    return TensorReshape() if rows and len(tensor.dims) == 1 else None


# -- without the graph -----------------------------------------------------------------------------


def completed_form(config: ModelConfig, files: Collection[str]) -> ModelConfig:
    """`config` with tensors as a graph may complete them: where none are declared, those that other
    fields name. `files` are the inputs that take files.
    """
    config = replace(config, input=config.input or tuple(_named_inputs(config, files)))
    return replace(config, output=config.output or tuple(_named_outputs(config)))


def _named_inputs(config: ModelConfig, files: Collection[str]) -> Iterator[Input]:
    if config.parameter(TOKENIZER) is not None:
        yield Input("TEXT", DataType.BYTES, dims=(1,))
        return
    for name in files:
        yield Input(name, DataType.BYTES, dims=(1,))
    sources = [each.source_input for each in config.batch_input]
    sources += [each.source_input for each in config.batch_output]
    for name in dict.fromkeys(name for names in sources for name in names):
        if name not in files:
            yield Input(name, DataType.FP32, dims=(-1,))


def _named_outputs(config: ModelConfig) -> Iterator[Output]:
    """Outputs that are split have the dimensions of what they are split by."""
    dims: dict[str, tuple[int, ...]] = dict.fromkeys(padded_outputs(config), (-1,))
    for each in config.batch_output:
        sources = [config.inputs_by_name.get(name) for name in each.source_input]
        shape = next((tuple(one.dims) for one in sources if one is not None), (-1,))
        dims |= dict.fromkeys(each.target_name, shape)
    for name, shape in dims.items():
        yield Output(name, DataType.FP32, dims=shape)
