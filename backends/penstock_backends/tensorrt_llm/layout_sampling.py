"""Sampling inputs of the five-model layout, under the names of its models (TL-11, TL-14)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.backend import DataType, InferenceRequest, Input, InvalidRequestError
from penstock_backends.language_model.constraints import NAME, check_constraint
from penstock_backends.tensorrt_llm.request import check_range, flag, scalar, text

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
