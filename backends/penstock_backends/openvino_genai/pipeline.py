"""Adapter of OpenVINO GenAI's pipeline to the small interface that the engine drives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from penstock.backend import BackendNotInstalledError, ModelLoadError
from penstock_backends.openvino_genai.sampling import Sampling
from penstock_backends.openvino_genai.settings import EngineSettings
from penstock_backends.openvino_genai.structure import Structure
from penstock_backends.openvino_genai.writable import writable


class StepOutput(NamedTuple):
    """The output of one step for one sequence. `finish_reason` is `None` while it runs.

    `lost`: the engine has dropped the sequence, for want of KV cache.
    """

    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    score: float = 0.0
    finish_reason: str | None = None
    lost: bool = False


_CONFIGS = 64
"""Configurations that are kept: making one takes longer than to tokenize a short prompt."""

LOST = StepOutput(lost=True)


class Handle(Protocol):
    """One sequence inside the pipeline."""

    def read(self) -> StepOutput | None:
        """The output of the last step; `None` without any."""

    def cancel(self) -> None:
        """Cancel the sequence; its blocks are released by the next step."""


class Pipeline(Protocol):
    """The interface of a pipeline that batches sequences in flight."""

    def add(self, prompt: Sequence[int], sampling: Sampling, *, logprobs: bool) -> Handle:
        """Add a sequence. Raises for parameters that the pipeline refuses."""

    def step(self) -> None:
        """Generate the next tokens of as many sequences as fit. Blocks."""

    @property
    def busy(self) -> bool:
        """Whether a step has work to do."""

    @property
    def cache_usage(self) -> float:
        """The fraction of the KV cache that the last step used, 0 to 1."""


class GenAiHandle:
    """A sequence in a `GenAiPipeline`."""

    __slots__ = ("_handle", "_logprobs", "_lost", "_reasons")

    def __init__(self, handle: Any, genai: Any, *, logprobs: bool) -> None:
        self._handle = handle
        self._logprobs = logprobs
        reason, status = genai.GenerationFinishReason, genai.GenerationStatus
        self._reasons = {reason.STOP.value: "stop", reason.LENGTH.value: "length"}
        self._lost = (status.IGNORED, status.CANCEL)

    def read(self) -> StepOutput | None:
        handle = self._handle
        if not handle.can_read():
            return LOST if handle.get_status() in self._lost else None
        output = handle.read()[0]
        reason = self._reasons.get(output.finish_reason.value)
        if not self._logprobs:
            return StepOutput(output.generated_ids, finish_reason=reason)
        return StepOutput(output.generated_ids, output.generated_log_probs, output.score, reason)

    def cancel(self) -> None:
        self._handle.cancel()


NOT_INSTALLED = "backend 'openvino_genai' needs OpenVINO GenAI: pip install 'penstock[openvino]'"


class GenAiPipeline:
    """`ContinuousBatchingPipeline` on the CPU."""

    def __init__(self, settings: EngineSettings) -> None:
        try:
            import openvino
            import openvino_genai
        except ImportError as error:
            raise BackendNotInstalledError(f"{NOT_INSTALLED} ({error})") from error
        self._openvino, self._genai = openvino, openvino_genai
        self._pipeline = self._open(settings)
        self._stops = self._stop_tokens()
        # The pipeline copies what it is given, so requests with equal parameters can share one.
        self._shared_config = lru_cache(_CONFIGS)(self._config)
        self._last_id = 0

    def add(self, prompt: Sequence[int], sampling: Sampling, *, logprobs: bool) -> Handle:
        self._last_id += 1  # the pipeline breaks if an id is reused
        tensor = self._openvino.Tensor(np.array([prompt], dtype=np.int64))
        shared = sampling.greedy and sampling.structure is None  # others have seeds
        make = self._shared_config if shared else self._config
        config = make(sampling, logprobs)
        handle = self._pipeline.add_request(self._last_id, tensor, config)
        return GenAiHandle(handle, self._genai, logprobs=logprobs)

    def step(self) -> None:
        self._pipeline.step()

    @property
    def busy(self) -> bool:
        return bool(self._pipeline.has_non_finished_requests())

    @property
    def cache_usage(self) -> float:
        return float(self._pipeline.get_metrics().cache_usage) / 100

    def _open(self, settings: EngineSettings) -> Any:
        scheduler = self._genai.SchedulerConfig()
        scheduler.num_kv_blocks = settings.num_kv_blocks
        scheduler.max_num_seqs = settings.max_num_seqs
        scheduler.max_num_batched_tokens = settings.max_num_batched_tokens
        scheduler.enable_prefix_caching = settings.enable_prefix_caching
        scheduler.dynamic_split_fuse = True
        try:
            with writable(settings.model) as model:
                return self._genai.ContinuousBatchingPipeline(
                    str(model), scheduler, "CPU", dict(settings.properties)
                )
        except Exception as error:  # the engine's own, of any kind
            raise ModelLoadError(f"cannot load '{settings.model}': {reason(error)}") from error

    def _stop_tokens(self) -> list[int]:
        """The model's end tokens, the main one first; -1 is skipped."""
        config = self._pipeline.get_config()
        tokens = [config.eos_token_id, *sorted(config.stop_token_ids)]
        return [token for token in dict.fromkeys(tokens) if token >= 0]

    def _config(self, sampling: Sampling, logprobs: bool) -> Any:
        config = self._genai.GenerationConfig()
        config.apply_chat_template = False
        config.max_new_tokens = sampling.max_tokens
        config.presence_penalty = sampling.presence_penalty
        config.frequency_penalty = sampling.frequency_penalty
        config.repetition_penalty = _single(sampling.repetition_penalty)
        config.logprobs = int(logprobs)
        self._set_stops(config, sampling)
        if sampling.structure is not None:
            config.structured_output_config = self._structure(sampling.structure)
        if not sampling.greedy:
            _set_randomness(config, sampling)
        return config

    def _structure(self, structure: Structure) -> Any:
        config = self._genai.StructuredOutputConfig()
        config.grammar = structure.grammar
        return config

    def _set_stops(self, config: Any, sampling: Sampling) -> None:
        """Set the end tokens. The engine's `ignore_eos` would ignore the request's own too."""
        own = [] if sampling.ignore_eos else self._stops
        stops = [*own, *sampling.stop_token_ids]
        config.ignore_eos = not stops
        config.min_new_tokens = sampling.min_tokens if stops else 0
        config.eos_token_id = stops[0] if stops else 0  # the engine requires one
        config.stop_token_ids = set(stops) or {0}


def _set_randomness(config: Any, sampling: Sampling) -> None:
    config.do_sample = True
    config.temperature = sampling.temperature
    config.top_p = _single(sampling.top_p)
    config.min_p = min(sampling.min_p, _HIGHEST_MIN_P)
    config.rng_seed = sampling.seed
    if sampling.top_k:
        config.top_k = sampling.top_k


def _single(value: float) -> float:
    """A positive number clamped to the engine's range of single precision."""
    return min(max(value, 1e-6), 1e6)


_HIGHEST_MIN_P = 1.0 - 2**-20
"""The engine refuses 1, which keeps the most likely token only; so does this, except for ties."""


def reason(error: BaseException) -> str:
    """The last line of an engine's error; the lines above are locations in its source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
