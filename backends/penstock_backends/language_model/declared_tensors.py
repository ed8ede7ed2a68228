"""Inputs and outputs of a language model as Triton's vLLM backend declares them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from penstock.backend import ConfigError, DataType, Input, ModelConfig, Output, TransactionPolicy

Declared = TypeVar("Declared", Input, Output)

SWITCHES = (
    "return_finish_reason",
    "return_cumulative_logprob",
    "return_logprobs",
    "return_num_input_tokens",
    "return_num_output_tokens",
    "return_token_ids",
    "return_stop_reason",
)
"""Inputs that request an output besides the text; its name is the part after `return_`."""


def optional_input(name: str, datatype: DataType, dim: int = 1) -> Input:
    """An input that a request may leave out."""
    return Input(name=name, data_type=datatype, dims=(dim,), optional=True)


def declared_output(name: str, datatype: DataType, dim: int = -1) -> Output:
    """An output, by default of any length."""
    return Output(name=name, data_type=datatype, dims=(dim,))


INPUTS = (
    optional_input("text_input", DataType.BYTES),
    optional_input("input_ids", DataType.INT32, dim=-1),
    optional_input("stream", DataType.BOOL),
    optional_input("sampling_parameters", DataType.BYTES),
    optional_input("exclude_input_in_output", DataType.BOOL),
    *(optional_input(name, DataType.BOOL) for name in SWITCHES),
)
OUTPUTS = (
    declared_output("text_output", DataType.BYTES),
    declared_output("finish_reason", DataType.BYTES),
    declared_output("cumulative_logprob", DataType.FP32),
    declared_output("logprobs", DataType.BYTES),
    declared_output("num_input_tokens", DataType.UINT32, dim=1),
    declared_output("num_output_tokens", DataType.UINT32),
    declared_output("token_ids", DataType.INT32),
    declared_output("stop_reason", DataType.BYTES),
)

Tensors = tuple[tuple[Input, ...], tuple[Output, ...]]
"""Inputs and outputs that an engine has besides these."""

NO_MORE: Tensors = ((), ())


def complete_tensors(config: ModelConfig, more: Tensors = NO_MORE) -> ModelConfig:
    """`config`, decoupled, with the tensors that it does not declare itself (VL-10, VL-02)."""
    inputs, outputs = more
    return replace(
        config,
        input=(*config.input, *missing(config.input, (*INPUTS, *inputs))),
        output=(*config.output, *missing(config.output, (*OUTPUTS, *outputs))),
        model_transaction_policy=config.model_transaction_policy or TransactionPolicy(True),
    )


def check_decoupled(config: ModelConfig, backend: str) -> None:
    """Check the decoupled policy, and that the engine batches by itself; raises `ConfigError`.

    `backend` is the name in the error text.
    """
    if not config.decoupled:
        raise ConfigError(
            f"{backend} backend must be configured to use decoupled model transaction policy"
        )
    if config.max_batch_size:
        raise ConfigError(
            f"max_batch_size must be 0, not {config.max_batch_size}: "
            f"the engine of the {backend} backend batches by itself"
        )


def missing(given: Iterable[Declared], known: Iterable[Declared]) -> list[Declared]:
    """The tensors of `known` that a configuration does not declare itself."""
    names = {tensor.name for tensor in given}
    return [tensor for tensor in known if tensor.name not in names]
