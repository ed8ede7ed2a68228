"""Inputs and outputs of vLLM's models besides those of every language model."""

from __future__ import annotations

from typing import Final

from penstock.backend import DataType
from penstock_backends.language_model.declared_tensors import (
    Tensors,
    declared_output,
    optional_input,
)

VLLM_TENSORS: Final[Tensors] = (
    (
        optional_input("return_num_cached_tokens", DataType.BOOL),
        optional_input("return_prompt_logprobs", DataType.BOOL),
        optional_input("return_reasoning_text", DataType.BOOL),
        optional_input("image", DataType.BYTES, dim=-1),
        optional_input("image_url", DataType.BYTES, dim=-1),
        optional_input("audio", DataType.BYTES, dim=-1),
        optional_input("video", DataType.BYTES, dim=-1),
        optional_input("embedding_request", DataType.BYTES),
        optional_input("text_pair", DataType.BYTES, dim=-1),
    ),
    (
        declared_output("num_cached_tokens", DataType.UINT32, dim=1),
        declared_output("prompt_logprobs", DataType.BYTES, dim=1),
        declared_output("reasoning_text", DataType.BYTES),
        declared_output("kv_transfer_params", DataType.BYTES, dim=1),
        declared_output("EMBEDDING", DataType.FP32),
        declared_output("CLASS_PROBS", DataType.FP32),
        declared_output("SCORE", DataType.FP32),
    ),
)
