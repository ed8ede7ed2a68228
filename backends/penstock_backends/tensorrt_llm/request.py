"""Decoder of a request's tensors: prompt, sampling, adapter and wanted outputs (TL-03)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.backend import InferenceRequest, InvalidRequestError
from penstock_backends.language_model import stops_complaint
from penstock_backends.tensorrt_llm.declared_tensors import PREFIX, PROCESSOR, SAMPLING, STOP

_SOURCES = ("hf", "nemo")
_LEAST = {
    "best_of": 1,
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 0.0,
    "max_tokens": 1,
}
_MOST = {"top_p": 1.0, "max_tokens": 1 << 24}
_DEFAULTS = {"best_of": 1, "exclude_input_from_output": False, "return_perf_metrics": False}


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter, as a request names it."""

    number: int
    name: str
    path: str
    source: str = "hf"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The outputs requested besides the text."""

    finish_reason: bool = False
    stop_reason: bool = False
    cumulative_logprob: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request as the engine takes it: prompt, sampling, and the form of the answer.

    `text` may be token ids. `sampling` has fields of the engine's `SamplingParams`; `given` those
    of the client's. `wanted` are the outputs that its face is to make.
    """

    text: str | list[int]
    sampling: dict[str, Any]
    given: dict[str, Any] = field(default_factory=dict)
    streaming: bool = False
    wanted: Any = Wanted()
    adapter: Adapter | None = None
    processor: str = ""
    image_urls: tuple[str, ...] = ()


def read_prompt(request: InferenceRequest, most_sequences: int) -> Prompt:
    """Decode a request; raises `InvalidRequestError` that names the input at fault."""
    given = read_sampling(request, most_sequences)
    wanted = Wanted(
        finish_reason=flag(request, "return_finish_reason"),
        stop_reason=flag(request, "return_stop_reason"),
        cumulative_logprob=flag(request, "return_cumulative_logprob"),
    )
    sampling = _DEFAULTS | given
    if wanted.cumulative_logprob:
        sampling["logprobs"] = 1
    return Prompt(
        text=text_input(request),
        sampling=sampling,
        given=given,
        streaming=flag(request, "streaming"),
        wanted=wanted,
        adapter=_adapter(request),
        processor=text(request, PROCESSOR) or "",
        image_urls=texts(request, "image_url"),
    )


def read_sampling(request: InferenceRequest, most_sequences: int) -> dict[str, Any]:
    """The sampling fields that the request gives, within their bounds."""
    given = {
        name: value for name in SAMPLING if (value := scalar(request, PREFIX + name)) is not None
    }
    for name, value in given.items():
        most = most_sequences if name == "best_of" else _MOST.get(name)
        check_range(PREFIX + name, value, _LEAST.get(name), most)
    if stops := texts(request, STOP):
        if "" in stops:
            raise InvalidRequestError(f"input '{STOP}' must not hold an empty text")
        check_words(STOP, stops)
        given["stop"] = list(stops)
    return given


def check_words(name: str, words: Sequence[str]) -> None:
    """Refuse more words, of which the engine makes tokens, than are looked for."""
    if complaint := stops_complaint(words):
        raise InvalidRequestError(f"input '{name}' {complaint}")


def check_range(name: str, value: float, least: float | None, most: float | None) -> None:
    """Refuse a number that is out of range, or NaN."""
    if not math.isfinite(value):
        raise InvalidRequestError(f"input '{name}' must be a finite number")
    if least is not None and value < least:
        raise InvalidRequestError(
            f"input '{name}' must be at least {least:g}, not {_digits(value)}"
        )
    if most is not None and value > most:
        raise InvalidRequestError(
            f"input '{name}' must be at most {_digits(most)}, not {_digits(value)}"
        )


def _digits(value: float) -> str:
    """A number in an error text: a whole one with all its digits."""
    return f"{value:.12g}" if float(value).is_integer() else f"{value:g}"


def scalar(request: InferenceRequest, name: str) -> Any:
    """The only element of a numeric input; `None` without it."""
    tensor = request.inputs.get(name)
    if tensor is None:
        return None
    values = tensor.numpy()
    if values.size != 1:
        raise InvalidRequestError(f"Expected a scalar tensor for tensor {name}")
    return values.ravel()[0].item()


def flag(request: InferenceRequest, name: str) -> bool:
    """A boolean input; false without it."""
    return bool(scalar(request, name))


def texts(request: InferenceRequest, name: str) -> tuple[str, ...]:
    """The elements of a text input; none without it."""
    tensor = request.inputs.get(name)
    try:
        return () if tensor is None else tuple(one.decode() for one in tensor.elements())
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"input '{name}' is not valid UTF-8: {error.reason}") from error


def text(request: InferenceRequest, name: str) -> str | None:
    """The only element of a text input; `None` without it."""
    if name not in request.inputs:
        return None
    found = texts(request, name)
    if len(found) != 1:
        raise InvalidRequestError(f"Expected a scalar tensor for tensor {name}")
    return found[0]


def text_input(request: InferenceRequest) -> str:
    """The prompt of a request; exactly one, and not empty."""
    found = texts(request, "text_input")
    if len(found) != 1:
        raise InvalidRequestError(f"input 'text_input' must hold one prompt, not {len(found)}")
    if not found[0]:
        raise InvalidRequestError("the prompt is empty: input 'text_input' must hold some text")
    return found[0]


def _adapter(request: InferenceRequest) -> Adapter | None:
    number, name, path = (
        scalar(request, "lora_id"),
        text(request, "lora_name"),
        text(request, "lora_path"),
    )
    if number is None and name is None and path is None:
        return None
    if number is None or name is None or path is None:
        raise InvalidRequestError("lora_id, lora_name, and lora_path must all be provided together")
    source = text(request, "lora_ckpt_source")
    if source is not None and source not in _SOURCES:
        raise InvalidRequestError(f"lora_ckpt_source must be one of {_SOURCES}, got {source!r}")
    return Adapter(int(number), name, path, source or "hf")


def check_adapter(adapter: Adapter | None, enabled: bool) -> None:
    """Refuse an adapter that the engine cannot load; its files are looked for only if it could."""
    if adapter is None:
        return
    if not enabled:
        raise InvalidRequestError("LoRA feature is not enabled.")
    if "\0" in adapter.path or not Path(adapter.path).exists():
        raise InvalidRequestError(
            f"lora_path does not exist on the Triton server's filesystem: {adapter.path}"
        )
