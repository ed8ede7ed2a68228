"""Inputs and outputs of TensorRT-LLM's LLM-API model, as its own Triton model declares them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from penstock.backend import (
    DataType,
    Input,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    Output,
    TransactionPolicy,
)
from penstock_backends.language_model.declared_tensors import (
    declared_output,
    missing,
    optional_input,
)

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


INPUTS: Final = (
    Input(name="text_input", data_type=DataType.BYTES, dims=(-1,)),
    optional_input("image_url", DataType.BYTES, -1),
    optional_input("streaming", DataType.BOOL),
    *(optional_input(PREFIX + name, datatype) for name, datatype in SAMPLING.items()),
    optional_input(STOP, DataType.BYTES, -1),
    optional_input(PROCESSOR, DataType.BYTES),
    optional_input("return_finish_reason", DataType.BOOL),
    optional_input("return_stop_reason", DataType.BOOL),
    optional_input("return_cumulative_logprob", DataType.BOOL),
    optional_input("stop", DataType.BOOL),
    optional_input("lora_id", DataType.UINT64),
    optional_input("lora_name", DataType.BYTES),
    optional_input("lora_path", DataType.BYTES),
    optional_input("lora_ckpt_source", DataType.BYTES),
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
    declared_output(name, datatype, dim) for name, (datatype, dim) in _OUTPUTS.items()
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
        input=(*config.input, *missing(config.input, inputs)),
        output=(*config.output, *missing(config.output, outputs)),
        model_transaction_policy=config.model_transaction_policy or TransactionPolicy(decoupled),
        instance_group=config.instance_group or (on_cpu,),
    )
