"""Decoder of a request's tensors and parameters into a `GenerationRequest`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.backend import InferenceRequest, InvalidRequestError
from penstock_backends.language_model.parameters import read_parameters

MERGE = "penstock_coalesce"
"""Request parameter: false sends every token in its own response, even to a slow reader."""


@dataclass(frozen=True, slots=True)
class WantedOutputs:
    """The outputs requested besides the text (VL-09)."""

    finish_reason: bool = False
    cumulative_logprob: bool = False
    logprobs: bool = False
    num_input_tokens: bool = False
    num_output_tokens: bool = False


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A prompt, its sampling parameters, and the form of the responses.

    `parameters` are as the client sent them: each engine reads them by its own table.
    `prepend_prompt` puts the prompt before every candidate's text.
    """

    prompt: str
    stream: bool = False
    prepend_prompt: bool = True
    parameters: Mapping[str, Any] | None = None
    wanted: WantedOutputs = WantedOutputs()
    merge: bool = True


def read_request(request: InferenceRequest) -> GenerationRequest:
    """Decode a request; raises `InvalidRequestError` that names the input or parameter at fault."""
    stream = bool(_flag(request, "stream"))
    return GenerationRequest(
        prompt=_text(request, "text_input"),
        stream=stream,
        prepend_prompt=_prepend_prompt(_flag(request, "exclude_input_in_output"), stream),
        parameters=read_parameters(_sampling_parameters(request)),
        wanted=WantedOutputs(
            finish_reason=bool(_flag(request, "return_finish_reason")),
            cumulative_logprob=bool(_flag(request, "return_cumulative_logprob")),
            logprobs=bool(_flag(request, "return_logprobs")),
            num_input_tokens=bool(_flag(request, "return_num_input_tokens")),
            num_output_tokens=bool(_flag(request, "return_num_output_tokens")),
        ),
        merge=_merge(request),
    )


def _prepend_prompt(exclude: bool | None, stream: bool) -> bool:
    """Streamed deltas never repeat the prompt; a whole answer does by default (VL-08)."""
    if stream and exclude is False:
        raise InvalidRequestError(
            "When streaming, `exclude_input_in_output` = False is not allowed."
        )
    return not (stream or exclude)


def _merge(request: InferenceRequest) -> bool:
    value = request.parameters.get(MERGE, True)
    if not isinstance(value, bool):
        raise InvalidRequestError(f"request parameter '{MERGE}' must be a boolean")
    return value


def _sampling_parameters(request: InferenceRequest) -> str | Mapping[str, Any]:
    if "sampling_parameters" in request.inputs:
        return _text(request, "sampling_parameters")
    return request.parameters


def _text(request: InferenceRequest, name: str) -> str:
    tensor = request.inputs.get(name)
    elements = [] if tensor is None else tensor.elements()
    if len(elements) != 1:
        raise InvalidRequestError(f"input '{name}' must hold one string, not {len(elements)}")
    try:
        return elements[0].decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"input '{name}' is not valid UTF-8: {error.reason}") from error


def _flag(request: InferenceRequest, name: str) -> bool | None:
    tensor = request.inputs.get(name)
    if tensor is None:
        return None
    values = tensor.numpy().ravel()
    if len(values) != 1:
        raise InvalidRequestError(f"input '{name}' must hold one boolean, not {len(values)}")
    return bool(values[0])
