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
)
"""Inputs that request an output besides the text; its name is the part after `return_`."""


def _optional(name: str, datatype: DataType, dim: int = 1) -> Input:
    return Input(name=name, data_type=datatype, dims=(dim,), optional=True)


def _output(name: str, datatype: DataType, dim: int = -1) -> Output:
    return Output(name=name, data_type=datatype, dims=(dim,))


INPUTS = (
    Input(name="text_input", data_type=DataType.BYTES, dims=(1,)),
    _optional("stream", DataType.BOOL),
    _optional("sampling_parameters", DataType.BYTES),
    _optional("exclude_input_in_output", DataType.BOOL),
    *(_optional(name, DataType.BOOL) for name in SWITCHES),
)
IMAGE = _optional("image", DataType.BYTES, dim=-1)
OUTPUTS = (
    _output("text_output", DataType.BYTES),
    _output("finish_reason", DataType.BYTES),
    _output("cumulative_logprob", DataType.FP32),
    _output("logprobs", DataType.BYTES),
    _output("num_input_tokens", DataType.UINT32, dim=1),
    _output("num_output_tokens", DataType.UINT32),
)


def complete_tensors(config: ModelConfig, *more_inputs: Input) -> ModelConfig:
    """`config`, decoupled, with the tensors that it does not declare itself (VL-10, VL-02)."""
    return replace(
        config,
        input=(*config.input, *_missing(config.input, (*INPUTS, *more_inputs))),
        output=(*config.output, *_missing(config.output, OUTPUTS)),
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


def _missing(given: Iterable[Declared], known: Iterable[Declared]) -> list[Declared]:
    names = {tensor.name for tensor in given}
    return [tensor for tensor in known if tensor.name not in names]
