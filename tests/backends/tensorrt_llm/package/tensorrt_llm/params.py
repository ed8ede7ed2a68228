"""Classes of values: sampling, and guides."""

from __future__ import annotations

from typing import Any

from .facts import bound


class SamplingParams:
    def __init__(self, **given: Any) -> None:
        self.__dict__.update(bound("SamplingParams", "__init__", given))
        if self.best_of is not None and self.best_of < self.n:
            raise ValueError(f"best_of {self.best_of} cannot be less than n {self.n}")

    best_of: int | None
    detokenize: bool
    end_id: int | None
    guided_decoding: Any
    logits_processor: Any
    logprobs: int | None
    max_tokens: int
    n: int
    return_perf_metrics: bool
    seed: int | None
    stop: Any
    stop_token_ids: Any


class GuidedDecodingParams:
    def __init__(self, **given: Any) -> None:
        self.__dict__.update(bound("GuidedDecodingParams", "__init__", given))
