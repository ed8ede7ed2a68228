"""Encoder of an engine's output as a response, with the datatypes that the model declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from penstock.backend import (
    Array,
    DataType,
    InferenceResponse,
    ModelConfig,
    Tensor,
    encode_elements,
)
from penstock_backends.tensorrt_llm.request import Wanted

_KV_CACHE = {
    "kv_cache_reused_block": "num_reused_blocks",
    "kv_cache_hit_rate": "kv_cache_hit_rate",
    "kv_cache_alloc_new_blocks": "num_new_allocated_blocks",
    "kv_cache_alloc_total_blocks": "num_total_allocated_blocks",
    "kv_cache_missed_block": "num_missed_blocks",
}
_TIMES = {
    "arrival_time_ns": "arrival_time",
    "first_scheduled_time_ns": "first_scheduled_time",
    "first_token_time_ns": "first_token_time",
    "last_token_time_ns": "last_token_time",
}
_DRAFTS = ("acceptance_rate", "total_accepted_draft_tokens", "total_draft_tokens")


class OutputEncoder:
    """Encodes outputs under the declared datatypes: a number as text where the model says so."""

    def __init__(self, config: ModelConfig) -> None:
        self._types = {output.name: output.data_type for output in config.output}
        self._lead = (1,) if config.max_batch_size else ()

    def tensor(self, name: str, values: Sequence[Any]) -> Tensor:
        """An output of one dimension; what is not known is NaN, -1 or the text `None`."""
        datatype = self._types.get(name) or DataType.BYTES
        if datatype == DataType.BYTES:
            texts = encode_elements([str(value).encode() for value in values])
            return Tensor(DataType.BYTES, (*self._lead, len(values)), texts)
        absent = np.nan if np.issubdtype(datatype.numpy, np.floating) else -1
        return self.array(name, np.array([absent if one is None else one for one in values]))

    def array(self, name: str, values: Array) -> Tensor:
        """An output of numbers, with the batch dimension of a model that has one."""
        datatype = self._types.get(name) or DataType.FP32
        shaped = values.reshape(*self._lead, *values.shape)
        return Tensor.from_numpy(shaped.astype(datatype.numpy), datatype)


class Answer:
    """The responses of one request, each with the text so far (TL-05)."""

    def __init__(self, encoder: OutputEncoder, wanted: Wanted) -> None:
        self._encoder = encoder
        self._wanted = wanted

    def response(self, output: Any) -> InferenceResponse:
        """The response for the output as it is now."""
        completions = output.outputs
        tensor, wanted = self._encoder.tensor, self._wanted
        outputs = {"text_output": tensor("text_output", [one.text for one in completions])}
        if wanted.finish_reason:
            reasons = [one.finish_reason for one in completions]
            outputs["finish_reason"] = tensor("finish_reason", reasons)
        if wanted.stop_reason:
            stops = [one.stop_reason for one in completions]
            outputs["stop_reason"] = tensor("stop_reason", stops)
        if wanted.cumulative_logprob:
            sums = [one.cumulative_logprob for one in completions]
            outputs["cumulative_logprob"] = tensor("cumulative_logprob", sums)
        metrics = completions[0].request_perf_metrics if completions else None
        if metrics:
            found = perf_metrics(metrics)
            outputs |= {name: tensor(name, [value]) for name, value in found.items()}
        return InferenceResponse(outputs, final=output.finished)


def perf_metrics(metrics: Any) -> Mapping[str, Any]:
    """Measurements of the engine for a request, by the name of the output (TL-04)."""
    blocks, times, drafts = (
        metrics.kv_cache_metrics,
        metrics.timing_metrics,
        metrics.speculative_decoding,
    )
    return {
        **{name: getattr(blocks, field) for name, field in _KV_CACHE.items()},
        **{name: nanoseconds(getattr(times, field)) for name, field in _TIMES.items()},
        **{name: getattr(drafts, name) for name in _DRAFTS},
    }


def nanoseconds(moment: timedelta) -> int:
    """A time of the engine's clock, exactly."""
    return (moment.days * 86400 + moment.seconds) * 1_000_000_000 + moment.microseconds * 1000
