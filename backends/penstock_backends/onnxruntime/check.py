"""Whether a configuration and a graph belong together (contract AC-06)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.core.config import ModelConfig, ModelInput, ModelOutput
from penstock.core.errors import ConfigError, ModelLoadError
from penstock_backends.onnxruntime.autocomplete import controls, states
from penstock_backends.onnxruntime.graph import Graph, GraphTensor


def check_supported(config: ModelConfig) -> None:
    """Refuse, by name, what this backend cannot honour."""
    refused = {
        "model_transaction_policy.decoupled": config.decoupled,
        "batch_input": bool(config.batch_input),
        "batch_output": bool(config.batch_output),
        "input.allow_ragged_batch": any(tensor.allow_ragged_batch for tensor in config.input),
    }
    for field, given in refused.items():
        if given:
            raise ConfigError(
                f"model '{config.name}': the onnxruntime backend does not support {field}"
            )


def check_declared(config: ModelConfig, graph: Graph) -> None:
    """Compare the declared tensors with those of the graph; raises `ModelLoadError`."""
    _check_names(config, "input", config.inputs_by_name, graph.inputs | graph.defaults)
    declared = config.inputs_by_name.keys() | controls(config)
    if missing := sorted(graph.inputs.keys() - declared):
        raise ModelLoadError(
            f"unable to load model '{config.name}', configuration expects {len(declared)} inputs, "
            f"model provides {len(graph.inputs)}: not declared: {', '.join(missing)}"
        )
    for tensor in config.input:
        _check_tensor(config, "input", tensor, (graph.inputs | graph.defaults)[tensor.name])
    check_outputs(config, graph)


def check_outputs(config: ModelConfig, graph: Graph) -> None:
    """Compare the declared outputs with those of the graph; raises `ModelLoadError`."""
    names = dict.fromkeys([*config.outputs_by_name, *states(config)])
    _check_names(config, "output", names, graph.outputs)
    for tensor in config.output:
        _check_tensor(config, "output", tensor, graph.outputs[tensor.name])


def _check_names(
    config: ModelConfig, what: str, declared: Mapping[str, object], known: Mapping[str, object]
) -> None:
    for name in declared:
        if name not in known:
            raise ModelLoadError(
                f"unexpected inference {what} '{name}' for model '{config.name}', "
                f"allowed {what}s are: {', '.join(known)}"
            )


def _check_tensor(
    config: ModelConfig, what: str, declared: ModelInput | ModelOutput, found: GraphTensor
) -> None:
    if declared.data_type is not found.datatype:
        given = declared.data_type.config_name if declared.data_type else "no datatype"
        raise ModelLoadError(
            f"unable to load model '{config.name}', configuration expects datatype {given} for "
            f"{what} '{found.name}', model provides {found.datatype.config_name}"
        )
    if found.dims or config.max_batch_size:
        _check_dims(config, declared.backend_dims, found)


def _check_dims(config: ModelConfig, dims: Sequence[int], found: GraphTensor) -> None:
    where = f"model '{config.name}', tensor '{found.name}': "
    if config.max_batch_size and found.dims[:1] != (-1,):
        raise ModelLoadError(
            f"{where}for the model to support batching the shape should have at least 1 dimension "
            "and the first dimension must be -1; but shape expected by the model is "
            f"{_written(found.dims)}"
        )
    whole = [-1, *dims] if config.max_batch_size else [*dims]
    if not _fits(whole, found.dims):
        raise ModelLoadError(
            f"{where}the model expects shape {_written(found.dims)} but the model configuration "
            f"specifies shape {_written(whole)}"
            f"{', the first being the batch' if config.max_batch_size else ''}"
        )


def _fits(declared: Sequence[int], found: Sequence[int]) -> bool:
    return len(declared) == len(found) and all(
        a == b or -1 in (a, b) for a, b in zip(declared, found, strict=True)
    )


def _written(dims: Sequence[int]) -> str:
    return f"[{','.join(map(str, dims))}]"
