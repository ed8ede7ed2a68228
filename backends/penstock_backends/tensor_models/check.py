"""Validation of a model configuration against its graph (contract AC-06)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.backend import (
    BatchInput,
    BatchOutput,
    ConfigError,
    DataType,
    Input,
    ModelConfig,
    ModelLoadError,
    Output,
)
from penstock_backends.tensor_models.autocomplete import controls, is_whole, states, written
from penstock_backends.tensor_models.graph import Graph, GraphTensor
from penstock_backends.tensor_models.padding import Padding


def check_supported(config: ModelConfig) -> None:
    """Reject configurations that no batch can be assembled for; raises `ConfigError`."""
    Padding.from_config(config)
    for tensor in config.batch_output:
        _check_scattered(config, tensor)


def _check_scattered(config: ModelConfig, tensor: BatchOutput) -> None:
    """Check that the output's dimensions are those of its source input, or fixed."""
    source = config.inputs_by_name[tensor.source_input[0]]
    for name in tensor.target_name:
        if len(config.outputs_by_name[name].backend_dims) != len(source.backend_dims):
            raise ConfigError(
                f"model '{config.name}': batch_output '{name}' must have as many dimensions as its "
                f"source input '{source.name}'"
            )


def check_declared(config: ModelConfig, graph: Graph) -> None:
    """Compare the declared tensors with those of the graph; raises `ModelLoadError`."""
    if not graph.outputs:
        raise ModelLoadError(f"failed to load model '{config.name}': its graph has no outputs")
    _check_names(config, "input", config.inputs_by_name, graph.inputs | graph.defaults)
    _check_names(config, "batch input", _targets(config), graph.inputs)
    declared = config.inputs_by_name.keys() | controls(config) | _targets(config).keys()
    if missing := sorted(graph.inputs.keys() - declared):
        raise ModelLoadError(
            f"unable to load model '{config.name}', configuration expects {len(declared)} inputs, "
            f"model provides {len(graph.inputs)}: not declared: {', '.join(missing)}"
        )
    for tensor in config.input:
        _check_input(config, tensor, (graph.inputs | graph.defaults)[tensor.name])
    for name, computed in _targets(config).items():
        _check_type(config, "batch input", computed.data_type, graph.inputs[name])
    check_outputs(config, graph)


def check_partly(config: ModelConfig, graph: Graph) -> None:
    """Compare what is declared where the rest is completed; raises `ModelLoadError`.

    The shapes of outputs are left alone, which not every `graph` knows.
    """
    inputs = graph.inputs | graph.defaults
    _check_names(config, "input", config.inputs_by_name, inputs)
    vary = all(tensor.dims[:1] == (-1,) for tensor in graph.inputs.values())
    batches = config.max_batch_size or int(vary and not is_whole(config, graph))
    sized = replace(config, max_batch_size=batches)
    for tensor in config.input:
        found = inputs[tensor.name]
        _check_type(config, "input", tensor.data_type, found)
        if not tensor.allow_ragged_batch:
            _check_shape(sized, tensor, found)
    _check_names(config, "output", config.outputs_by_name, graph.outputs)
    for output in config.output:
        _check_type(config, "output", output.data_type, graph.outputs[output.name])


def check_outputs(config: ModelConfig, graph: Graph) -> None:
    """Compare the declared outputs with those of the graph; raises `ModelLoadError`."""
    names = dict.fromkeys([*config.outputs_by_name, *states(config)])
    _check_names(config, "output", names, graph.outputs)
    scattered = {name for tensor in config.batch_output for name in tensor.target_name}
    for tensor in config.output:
        _check_marks(config, "output", tensor, graph.outputs[tensor.name])
        _check_type(config, "output", tensor.data_type, graph.outputs[tensor.name])
        if tensor.name not in scattered:
            _check_shape(config, tensor, graph.outputs[tensor.name])


def _targets(config: ModelConfig) -> dict[str, BatchInput]:
    """The graph's inputs that are batch inputs, by name."""
    return {name: tensor for tensor in config.batch_input for name in tensor.target_name}


def _check_marks(
    config: ModelConfig, what: str, tensor: Input | Output, found: GraphTensor
) -> None:
    """Compare what TensorRT's models say of their tensors beside datatypes and shapes."""
    where = f"{what} '{tensor.name}' for model '{config.name}'"
    if found.is_shape and not tensor.is_shape_tensor:
        raise ModelLoadError(
            f"{where} is a shape tensor but the model configuration doesn't mark it as a shape"
            " tensor."
        )
    if tensor.is_shape_tensor and not found.is_shape:
        raise ModelLoadError(
            f"{where} is incorrectly marked as a shape tensor in the model configuration."
        )
    if tensor.is_non_linear_format_io == found.is_linear:
        kind, mark = ("linear", "true") if found.is_linear else ("non-linear", "false")
        raise ModelLoadError(
            f"{where} uses a {kind} IO format, but 'is_non_linear_format_io' is incorrectly set to"
            f" {mark} in the model configuration."
        )


def _check_input(config: ModelConfig, tensor: Input, found: GraphTensor) -> None:
    _check_marks(config, "input", tensor, found)
    _check_type(config, "input", tensor.data_type, found)
    joined = tensor.allow_ragged_batch and config.max_batch_size > 0
    if not joined or tensor.name in Padding.from_config(config).values:
        _check_shape(config, tensor, found)
    elif found.dims != (-1,):
        raise ModelLoadError(
            f"unable to load model '{config.name}', configuration expects model provides input "
            f"with shape [-1]  for ragged input '{found.name}', model provides "
            f"{written(found.dims)}"
        )


def _check_names(
    config: ModelConfig, what: str, declared: Mapping[str, object], known: Mapping[str, object]
) -> None:
    for name in declared:
        if name not in known:
            raise unexpected(config, what, name, known)


def unexpected(
    config: ModelConfig, what: str, name: str, known: Mapping[str, object]
) -> ModelLoadError:
    """The error of an input or output, as `what` says, that the graph does not have."""
    return ModelLoadError(
        f"unexpected inference {what} '{name}' for model '{config.name}', "
        f"allowed {what}s are: {', '.join(known)}"
    )


def misfit(parameter: str, why: str, found: GraphTensor) -> ModelLoadError:
    """The error of a parameter that makes another array than the graph takes; `why` says which."""
    return ModelLoadError(
        f"parameter '{parameter}': {why}, and the model takes {found.datatype.config_name} of"
        f" shape {written(found.dims)} for input '{found.name}'"
    )


def _check_type(
    config: ModelConfig, what: str, declared: DataType | None, found: GraphTensor
) -> None:
    if declared is not found.datatype:
        given = declared.config_name if declared else "no datatype"
        raise ModelLoadError(
            f"unable to load model '{config.name}', configuration expects datatype {given} for "
            f"{what} '{found.name}', model provides {found.datatype.config_name}"
        )


def _check_shape(config: ModelConfig, declared: Input | Output, found: GraphTensor) -> None:
    if found.dims or config.max_batch_size:
        _check_dims(config, declared.backend_dims, found)


def _check_dims(config: ModelConfig, dims: Sequence[int], found: GraphTensor) -> None:
    where = f"model '{config.name}', tensor '{found.name}': "
    if config.max_batch_size and found.dims[:1] != (-1,):
        raise ModelLoadError(
            f"{where}for the model to support batching the shape should have at least 1 dimension "
            "and the first dimension must be -1; but shape expected by the model is "
            f"{written(found.dims)}"
        )
    whole = [-1, *dims] if config.max_batch_size else [*dims]
    if not _fits(whole, found.dims):
        raise ModelLoadError(
            f"{where}the model expects shape {written(found.dims)} but the model configuration "
            f"specifies shape {written(whole)}"
            f"{', the first being the batch' if config.max_batch_size else ''}"
        )


def _fits(declared: Sequence[int], found: Sequence[int]) -> bool:
    return len(declared) == len(found) and all(
        a == b or -1 in (a, b) for a, b in zip(declared, found, strict=True)
    )
