"""The five-model layout: settings, sampling inputs and outputs that its models have in common."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.backend import (
    Array,
    DataType,
    InferenceRequest,
    Input,
    InvalidRequestError,
    ModelConfig,
    ModelLoadError,
    Output,
    Tensor,
)
from penstock_backends.language_model.constraints import NAME, check_constraint
from penstock_backends.tensorrt_llm.answer import OutputEncoder, perf_metrics
from penstock_backends.tensorrt_llm.parameter_text import as_bool, is_unset, read_parameter
from penstock_backends.tensorrt_llm.plan_files import refuse_plans
from penstock_backends.tensorrt_llm.request import check_range, flag, scalar, text
from penstock_backends.tensorrt_llm.settings import EngineSettings, read_settings, settings_path

logger = logging.getLogger(__name__)

# -- settings, of the parameters of the model `tensorrt_llm` (TL-34) -------------------------------


def _windows(text: str) -> list[int]:
    """The window of each layer, separated by commas."""
    return [int(one) for one in text.split(",")]


_MODEL: Final = ("gpt_model_path", "engine_dir")
_ARGUMENTS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "max_beam_width": ("max_beam_width", int),
    "enable_chunked_context": ("enable_chunked_prefill", as_bool),
    "guided_decoding_backend": ("guided_decoding_backend", str),
    "tokenizer_dir": ("tokenizer", str),
    "iter_stats_max_iterations": ("iter_stats_max_iterations", int),
    "request_stats_max_iterations": ("request_stats_max_iterations", int),
}
_CACHE: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "max_tokens_in_paged_kv_cache": ("max_tokens", int),
    "kv_cache_free_gpu_mem_fraction": ("free_gpu_memory_fraction", float),
    "kv_cache_host_memory_bytes": ("host_cache_size", int),
    "enable_kv_cache_reuse": ("enable_block_reuse", as_bool),
    "max_attention_window_size": ("max_attention_window", _windows),
    "sink_token_length": ("sink_token_length", int),
}
_POLICY: Final = "batch_scheduler_policy"
_BATCHING: Final = "gpt_model_type"
_ELSEWHERE: Final = ("gpu_device_ids", "exclude_input_in_output")
_OURS: Final = "penstock."
_IN_FLIGHT: Final = ("inflight_fused_batching", "inflight_batching")


def read_layout_settings(config: ModelConfig, version_path: Path) -> EngineSettings:
    """`model.yaml` if there is one, and the parameters for what it does not say."""
    _check_batching(config)
    try:
        settings_path(version_path)
    except ModelLoadError:
        settings = _of_folder(config, version_path)
    else:
        settings = read_settings(version_path)
    values = settings.values
    for name, (argument, kind) in _ARGUMENTS.items():
        _take(values, argument, read_parameter(config, name, kind))
    cache = dict(values.get("kv_cache_config") or {})
    for name, (argument, kind) in _CACHE.items():
        _take(cache, argument, read_parameter(config, name, kind))
    if cache:
        values["kv_cache_config"] = cache
    if (policy := read_parameter(config, _POLICY, str)) is not None:
        scheduler = {"capacity_scheduler_policy": policy.upper()}
        values["scheduler_config"] = scheduler | dict(values.get("scheduler_config") or {})
    if settings.is_engine and "tokenizer" not in values:
        values.setdefault("skip_tokenizer_init", True)
    return settings


def name_ineffective(config: ModelConfig) -> None:
    """Log the parameters of the removed backend that are set and change nothing here."""
    used = {*_MODEL, *_ARGUMENTS, *_CACHE, _POLICY, _BATCHING, *_ELSEWHERE}
    ineffective = [
        name
        for name, parameter in config.parameters.items()
        if name not in used and not name.startswith(_OURS) and not is_unset(parameter.string_value)
    ]
    if ineffective:
        logger.warning(
            "parameters of '%s' that have no effect here: %s",
            config.name,
            ", ".join(sorted(ineffective)),
        )


def _check_batching(config: ModelConfig) -> None:
    batching = read_parameter(config, _BATCHING, str)
    if batching is not None and batching.lower() not in _IN_FLIGHT:
        raise ModelLoadError(
            f"parameter '{_BATCHING}' must be '{_IN_FLIGHT[0]}', not '{batching}': "
            "TensorRT-LLM always batches in flight"
        )


def _of_folder(config: ModelConfig, version_path: Path) -> EngineSettings:
    """The settings of a model whose parameters say where its engine, or checkpoint, is."""
    for name in _MODEL:
        if (folder := read_parameter(config, name, str)) is not None:
            inside = version_path / folder
            model = str(inside) if inside.exists() else folder
            refuse_plans(Path(model))
            return EngineSettings({"model": model}, version_path.parent / "config.pbtxt")
    refuse_plans(version_path)
    raise ModelLoadError(
        f"'model.yaml' containing TRT-LLM engine args not found in '{version_path}', "
        f"and no parameter '{_MODEL[0]}'"
    )


def _take(values: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        values.setdefault(name, value)


# -- sampling inputs, under the names of its models (TL-11, TL-14) --------------------------------

NUMBERS: Final = {
    "end_id": ("end_id", DataType.INT32, None, None),
    "pad_id": ("pad_id", DataType.INT32, None, None),
    "top_k": ("top_k", DataType.INT32, 0, None),
    "top_p": ("top_p", DataType.FP32, 0, 1),
    "top_p_min": ("top_p_min", DataType.FP32, 0, 1),
    "top_p_decay": ("top_p_decay", DataType.FP32, 0, 1),
    "top_p_reset_ids": ("top_p_reset_ids", DataType.INT32, None, None),
    "temperature": ("temperature", DataType.FP32, 0, None),
    "length_penalty": ("length_penalty", DataType.FP32, None, None),
    "early_stopping": ("early_stopping", DataType.BOOL, None, None),
    "repetition_penalty": ("repetition_penalty", DataType.FP32, 0, None),
    "min_tokens": ("min_tokens", DataType.INT32, 0, 1 << 24),
    "min_length": ("min_tokens", DataType.INT32, 0, 1 << 24),
    "beam_search_diversity_rate": ("beam_search_diversity_rate", DataType.FP32, 0, None),
    "presence_penalty": ("presence_penalty", DataType.FP32, None, None),
    "frequency_penalty": ("frequency_penalty", DataType.FP32, None, None),
    "seed": ("seed", DataType.UINT64, None, None),
}
"""By the name of our table: the field of `SamplingParams`, datatype, least and most."""

TOKENS: Final = {
    "top_k": "runtime_top_k",
    "top_p": "runtime_top_p",
    "top_p_min": "runtime_top_p_min",
    "top_p_decay": "runtime_top_p_decay",
    "top_p_reset_ids": "runtime_top_p_reset_ids",
    "length_penalty": "len_penalty",
}
"""Names that the model `tensorrt_llm` has for some of them."""

FLAGS: Final = (
    "return_log_probs",
    "return_context_logits",
    "return_generation_logits",
    "return_perf_metrics",
    "return_num_input_tokens",
    "return_num_output_tokens",
    "exclude_input_in_output",
    "stop",
)
COUNTS: Final = ("beam_width", "num_return_sequences")
GUIDES: Final = ("guided_decoding_guide_type", "guided_decoding_guide")

_MOST_TOKENS = 1 << 24
_JSON = "json"
_KINDS = {
    "json_schema": "json",
    "regex": "regex",
    "ebnf_grammar": "grammar",
    "structural_tag": "structural_tag",
}


@dataclass(frozen=True, slots=True)
class LayoutOutputs:
    """The outputs requested besides text or tokens."""

    log_probs: bool = False
    context_logits: bool = False
    generation_logits: bool = False
    num_input_tokens: bool = False
    num_output_tokens: bool = False
    exclude_input: bool | None = None


def optional(name: str, datatype: DataType, *dims: int) -> Input:
    """The declaration of an optional input."""
    return Input(name=name, data_type=datatype, dims=dims or (1,), optional=True)


def declared(names: Mapping[str, str]) -> tuple[Input, ...]:
    """The declarations of the sampling inputs under these names."""
    return (
        *(optional(names.get(name, name), about[1]) for name, about in NUMBERS.items()),
        *(optional(name, DataType.INT32) for name in COUNTS),
        *(optional(name, DataType.BOOL) for name in FLAGS),
        *(optional(name, DataType.BYTES) for name in GUIDES),
    )


def read_sampling(
    request: InferenceRequest, names: Mapping[str, str], length: str, most_sequences: int
) -> dict[str, Any]:
    """The fields of `SamplingParams`; `length` is the input with the most tokens to make."""
    most = scalar(request, length)
    if most is None:
        raise InvalidRequestError(f"input '{length}' is needed")
    check_range(length, most, 1, _MOST_TOKENS)
    given: dict[str, Any] = {"max_tokens": most}
    for name, (field, _, least, largest) in NUMBERS.items():
        own = names.get(name, name)
        if (value := scalar(request, own)) is not None:
            check_range(own, value, least, largest)
            given[field] = int(value) if isinstance(value, bool) else value
    given |= _sequences(request, most_sequences)
    if flag(request, "return_log_probs"):
        given["logprobs"] = 1
    for name in ("return_context_logits", "return_generation_logits", "return_perf_metrics"):
        if flag(request, name):
            given[name] = True
    if (guide := _guide(request)) is not None:
        given["guided_decoding"] = guide
    return given


def read_outputs(request: InferenceRequest) -> LayoutOutputs:
    """The outputs that the request asks for."""
    exclude = scalar(request, "exclude_input_in_output")
    return LayoutOutputs(
        log_probs=flag(request, "return_log_probs"),
        context_logits=flag(request, "return_context_logits"),
        generation_logits=flag(request, "return_generation_logits"),
        num_input_tokens=flag(request, "return_num_input_tokens"),
        num_output_tokens=flag(request, "return_num_output_tokens"),
        exclude_input=None if exclude is None else bool(exclude),
    )


def _sequences(request: InferenceRequest, most: int) -> dict[str, Any]:
    """The number of sequences, and whether beam search makes them."""
    beams, wanted = (int(scalar(request, name) or 1) for name in COUNTS)
    check_range("beam_width", beams, 1, most)
    check_range("num_return_sequences", wanted, 1, most)
    if beams == 1:
        return {} if wanted == 1 else {"n": wanted}
    if wanted > beams:
        raise InvalidRequestError(
            f"input 'num_return_sequences' must be at most the beam_width {beams}, not {wanted}"
        )
    returned = wanted if "num_return_sequences" in request.inputs else beams
    return {"use_beam_search": True, "best_of": beams, "n": returned}


def _guide(request: InferenceRequest) -> dict[str, Any] | None:
    kind, guide = (text(request, name) for name in GUIDES)
    if kind is None and guide is None:
        return None
    if kind == _JSON:
        return {"json_object": True}
    if kind not in _KINDS:
        kinds = sorted((_JSON, *_KINDS))
        raise InvalidRequestError(f"input '{GUIDES[0]}' must be one of {kinds}, not {kind!r}")
    if guide is None:
        raise InvalidRequestError(f"input '{GUIDES[1]}' is needed")
    made = {_KINDS[kind]: guide}
    try:
        check_constraint(made)
    except InvalidRequestError as error:
        named = error.message.partition(f"'{NAME}'")[2] or f": {error.message}"
        raise InvalidRequestError(f"input '{GUIDES[1]}'{named}") from error
    return made


def log_prob(place: Any, token: int) -> float:
    """The log probability of the token at a place: a number, or an entry of a mapping."""
    if not isinstance(place, Mapping):
        return float(place)
    entry: Any = place.get(token)
    return math.nan if entry is None else float(getattr(entry, "logprob", entry))


# -- outputs (TL-12) ------------------------------------------------------------------------------

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
