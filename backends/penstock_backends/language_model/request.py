"""Decoder of a request's tensors and parameters into a `GenerationRequest`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from penstock.backend import Array, InferenceError, InferenceRequest, InvalidRequestError
from penstock_backends.language_model.parameters import read_parameters

MERGE = "penstock_coalesce"
"""Request parameter: false sends every token in its own response, even to a slow reader."""

RUNNING_ERROR = "Error generating stream: "
"""The beginning of every error that ends a running request (VL-15)."""

SWITCH = "return_"
"""The beginning of the inputs that request an output, whose name follows."""


@dataclass(frozen=True, slots=True)
class WantedOutputs:
    """The outputs requested besides the text (VL-09); the last five are not Triton's."""

    finish_reason: bool = False
    cumulative_logprob: bool = False
    logprobs: bool = False
    num_input_tokens: bool = False
    num_output_tokens: bool = False
    token_ids: bool = False
    stop_reason: bool = False
    num_cached_tokens: bool = False
    prompt_logprobs: bool = False
    reasoning_text: bool = False


_NONE_WANTED = WantedOutputs()
_SWITCHES = tuple(SWITCH + field.name for field in fields(WantedOutputs))


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A prompt, its sampling parameters, and the form of the responses.

    The prompt is text, or `input_ids`, which no one has checked yet. `parameters` are as the client
    sent them: each engine reads them by its own table. `prepend_prompt` puts the prompt before
    every candidate's text.
    """

    prompt: str
    stream: bool = False
    prepend_prompt: bool = True
    parameters: Mapping[str, Any] | None = None
    wanted: WantedOutputs = _NONE_WANTED
    merge: bool = True
    input_ids: Array | None = None


def read_request(request: InferenceRequest) -> GenerationRequest:
    """Decode a request; raises `InvalidRequestError` that names the input or parameter at fault."""
    stream = bool(_flag(request, "stream"))
    prompt, ids = _prompt(request)
    exclude = _flag(request, "exclude_input_in_output")
    return GenerationRequest(
        prompt=prompt,
        stream=stream,
        prepend_prompt=_prepend_prompt(exclude, stream, text=ids is None),
        parameters=read_parameters(_sampling_parameters(request)),
        wanted=_wanted(request),
        merge=_merge(request),
        input_ids=ids,
    )


def checked_ids(ids: Array, vocabulary: int, longest: int) -> list[int]:
    """Token ids as a list; raises `InvalidRequestError` if the engine cannot take them."""
    if not ids.size:
        raise InvalidRequestError("the prompt is empty: input 'input_ids' must hold token ids")
    if ids.size > longest:
        raise InvalidRequestError(
            f"the prompt has {ids.size} tokens, but the model's context length is {longest} tokens"
        )
    for token in (int(ids.min()), int(ids.max())):
        if not 0 <= token < vocabulary:
            raise InvalidRequestError(
                f"input 'input_ids' holds {token}, but the model's token ids are "
                f"0 to {vocabulary - 1}"
            )
    return list(ids.tolist())


def running_error(error: InferenceError) -> InferenceError:
    """The error of a running request, in the words of Triton's vLLM backend (VL-15)."""
    return type(error)(f"{RUNNING_ERROR}{error.message}")


def _prompt(request: InferenceRequest) -> tuple[str, Array | None]:
    """The prompt as text or as token ids; an empty text beside ids is none."""
    ids = request.inputs.get("input_ids")
    if ids is None:
        if "text_input" not in request.inputs:
            raise InvalidRequestError(
                "the request has no prompt: give input 'text_input' or input 'input_ids'"
            )
        return _text(request, "text_input"), None
    if "text_input" in request.inputs and _text(request, "text_input"):
        raise InvalidRequestError(
            "the request has two prompts: give input 'text_input' or input 'input_ids', not both"
        )
    return "", ids.numpy().ravel()


def _wanted(request: InferenceRequest) -> WantedOutputs:
    given = [name for name in _SWITCHES if name in request.inputs]
    if not given:
        return _NONE_WANTED
    wanted = {name.removeprefix(SWITCH): bool(_flag(request, name)) for name in given}
    return WantedOutputs(**wanted)


def _prepend_prompt(exclude: bool | None, stream: bool, *, text: bool) -> bool:
    """Streamed deltas never repeat the prompt; a whole answer to a text does by default (VL-08)."""
    if stream and exclude is False:
        raise InvalidRequestError(
            f"{RUNNING_ERROR}When streaming, `exclude_input_in_output` = False is not allowed."
        )
    if not text and exclude is False:
        raise InvalidRequestError(
            "input 'exclude_input_in_output' of false needs a prompt in 'text_input'"
        )
    return text and not (stream or exclude)


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
