"""Inputs and outputs of TensorRT-LLM's LLM-API model, as its own Triton model declares them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeVar

from penstock.backend import (
    DataType,
    Input,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    Output,
    TransactionPolicy,
)

Declared = TypeVar("Declared", Input, Output)

SAMPLING: Final = {
    "best_of": DataType.INT32,
    "temperature": DataType.FP32,
    "top_k": DataType.INT32,
    "top_p": DataType.FP32,
    "frequency_penalty": DataType.FP32,
    "presence_penalty": DataType.FP32,
    "max_tokens": DataType.INT32,
    "seed": DataType.UINT64,
    "exclude_input_from_output": DataType.BOOL,
    "return_perf_metrics": DataType.BOOL,
}
"""Fields of `SamplingParams` that requests may give, each as input `sampling_param_...`."""

PREFIX: Final = "sampling_param_"
STOP: Final = "sampling_param_stop"
PROCESSOR: Final = "sampling_param_logits_post_processor_name"


def _optional(name: str, datatype: DataType, dim: int = 1) -> Input:
    return Input(name=name, data_type=datatype, dims=(dim,), optional=True)


INPUTS: Final = (
    Input(name="text_input", data_type=DataType.BYTES, dims=(-1,)),
    _optional("image_url", DataType.BYTES, -1),
    _optional("streaming", DataType.BOOL),
    *(_optional(PREFIX + name, datatype) for name, datatype in SAMPLING.items()),
    _optional(STOP, DataType.BYTES, -1),
    _optional(PROCESSOR, DataType.BYTES),
    _optional("return_finish_reason", DataType.BOOL),
    _optional("return_stop_reason", DataType.BOOL),
    _optional("return_cumulative_logprob", DataType.BOOL),
    _optional("stop", DataType.BOOL),
    _optional("lora_id", DataType.UINT64),
    _optional("lora_name", DataType.BYTES),
    _optional("lora_path", DataType.BYTES),
    _optional("lora_ckpt_source", DataType.BYTES),
)

_OUTPUTS: Final = {
    "text_output": (DataType.BYTES, -1),
    "finish_reason": (DataType.BYTES, -1),
    "stop_reason": (DataType.BYTES, -1),
    "cumulative_logprob": (DataType.FP32, -1),
    "kv_cache_reused_block": (DataType.INT32, -1),
    "kv_cache_missed_block": (DataType.INT32, -1),
    "kv_cache_alloc_new_blocks": (DataType.INT32, -1),
    "kv_cache_alloc_total_blocks": (DataType.INT32, -1),
    "kv_cache_hit_rate": (DataType.FP32, -1),
    "arrival_time_ns": (DataType.INT64, 1),
    "first_scheduled_time_ns": (DataType.INT64, 1),
    "first_token_time_ns": (DataType.INT64, 1),
    "last_token_time_ns": (DataType.INT64, 1),
    "acceptance_rate": (DataType.FP32, 1),
    "total_accepted_draft_tokens": (DataType.INT32, 1),
    "total_draft_tokens": (DataType.INT32, 1),
}
OUTPUTS: Final = tuple(
    Output(name=name, data_type=datatype, dims=(dim,)) for name, (datatype, dim) in _OUTPUTS.items()
)


def complete_tensors(
    config: ModelConfig,
    decoupled: bool,
    inputs: Iterable[Input] = INPUTS,
    outputs: Iterable[Output] = OUTPUTS,
) -> ModelConfig:
    """`config` with the tensors, the policy and the instance that it does not declare itself."""
    on_cpu = InstanceGroup(kind=InstanceKind.KIND_CPU, count=1)
    return replace(
        config,
        input=(*config.input, *_missing(config.input, inputs)),
        output=(*config.output, *_missing(config.output, outputs)),
        model_transaction_policy=config.model_transaction_policy or TransactionPolicy(decoupled),
        instance_group=config.instance_group or (on_cpu,),
    )


def _missing(given: Iterable[Declared], known: Iterable[Declared]) -> list[Declared]:
    names = {tensor.name for tensor in given}
    return [tensor for tensor in known if tensor.name not in names]
