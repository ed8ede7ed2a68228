"""Encoder of outputs that the models of the five-model layout have in common (TL-12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from penstock.backend import Array, DataType, ModelConfig, Output, Tensor
from penstock_backends.tensorrt_llm.answer import OutputEncoder, perf_metrics
from penstock_backends.tensorrt_llm.layout_sampling import LayoutOutputs, log_prob
from penstock_backends.tensorrt_llm.parameter_text import as_bool, read_parameter

_PERF: Final = {
    "kv_cache_alloc_new_blocks": "kv_cache_alloc_new_blocks",
    "kv_cache_reused_blocks": "kv_cache_reused_block",
    "kv_cache_alloc_total_blocks": "kv_cache_alloc_total_blocks",
    "arrival_time_ns": "arrival_time_ns",
    "first_scheduled_time_ns": "first_scheduled_time_ns",
    "first_token_time_ns": "first_token_time_ns",
    "last_token_time_ns": "last_token_time_ns",
    "acceptance_rate": "acceptance_rate",
    "total_accepted_draft_tokens": "total_accepted_draft_tokens",
    "total_draft_tokens": "total_draft_tokens",
}
"""Our outputs, and what the LLM-API model calls them."""

_TYPES: Final = {
    "arrival_time_ns": DataType.INT64,
    "first_scheduled_time_ns": DataType.INT64,
    "first_token_time_ns": DataType.INT64,
    "last_token_time_ns": DataType.INT64,
    "acceptance_rate": DataType.FP32,
}


def output(name: str, datatype: DataType, *dims: int) -> Output:
    """The declaration of an output."""
    return Output(name=name, data_type=datatype, dims=dims or (1,))


COMMON: Final = (
    output("cum_log_probs", DataType.FP32, -1),
    output("output_log_probs", DataType.FP32, -1, -1),
    output("context_logits", DataType.FP32, -1, -1),
    output("generation_logits", DataType.FP32, -1, -1, -1),
    output("batch_index", DataType.INT32),
    output("sequence_index", DataType.INT32),
    *(output(name, _TYPES.get(name, DataType.INT32)) for name in _PERF),
    output("num_input_tokens", DataType.INT32),
    output("num_output_tokens", DataType.INT32),
)


class CommonOutputs:
    """Encodes what a request asks for besides its text or tokens."""

    def __init__(self, encoder: OutputEncoder, wanted: LayoutOutputs, prompt: int) -> None:
        self._encoder = encoder
        self._wanted = wanted
        self._prompt = prompt

    def tensors(self, found: Any, since: Sequence[int]) -> dict[str, Tensor]:
        """The outputs by name; `since` are the tokens of each sequence that were sent before."""
        array, wanted, sequences = self._encoder.array, self._wanted, found.outputs
        made = {
            "batch_index": array("batch_index", np.zeros(1)),
            "sequence_index": array("sequence_index", np.zeros(1)),
        }
        if wanted.log_probs:
            sums = [_sum(one) for one in sequences]
            made["cum_log_probs"] = array("cum_log_probs", np.array(sums))
            rows = [_log_probs(one, at) for one, at in zip(sequences, since, strict=True)]
            made["output_log_probs"] = array("output_log_probs", padded(rows, 0.0))
        if wanted.context_logits and found.context_logits is not None:
            made["context_logits"] = array("context_logits", _array(found.context_logits))
        if wanted.generation_logits and sequences[0].generation_logits is not None:
            logits = np.stack([_array(one.generation_logits) for one in sequences])
            made["generation_logits"] = array("generation_logits", logits)
        if wanted.num_input_tokens:
            count = len(found.prompt_token_ids or ()) or self._prompt
            made["num_input_tokens"] = array("num_input_tokens", np.array([count]))
        if wanted.num_output_tokens:
            count = sum(len(one.token_ids) for one in sequences)
            made["num_output_tokens"] = array("num_output_tokens", np.array([count]))
        if metrics := sequences[0].request_perf_metrics:
            values = perf_metrics(metrics)
            made |= {name: array(name, np.array([values[key]])) for name, key in _PERF.items()}
        return made


def excludes_input(wanted: LayoutOutputs, config: ModelConfig) -> bool:
    """Whether answers leave the prompt out: as the request says, else the model's parameter."""
    if wanted.exclude_input is not None:
        return wanted.exclude_input
    return bool(read_parameter(config, "exclude_input_in_output", as_bool))


def padded(rows: Sequence[Sequence[Any]], filler: Any) -> Array:
    """Rows of different lengths as one array."""
    longest = max((len(row) for row in rows), default=0)
    return np.array([[*row, *[filler] * (longest - len(row))] for row in rows])


def _sum(sequence: Any) -> float:
    known = sequence.cumulative_logprob
    return float("nan") if known is None else float(known)


def _log_probs(sequence: Any, since: int) -> list[float]:
    places = sequence.logprobs or []
    tokens = sequence.token_ids
    return [log_prob(place, tokens[at]) for at, place in enumerate(places) if at >= since]


def _array(logits: Any) -> Array:
    """Logits as numpy's, from wherever they are."""
    return np.asarray(logits.float().cpu() if hasattr(logits, "cpu") else logits)
