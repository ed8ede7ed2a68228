"""Bodies of requests for OpenAI's API, made of a prompt and sampling parameters in vLLM's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from penstock.backend import InvalidRequestError
from penstock_backends.language_model import (
    GenerationRequest,
    ParameterReader,
    check_stops,
    refuse,
)

TITLE: Final = "remote"

_INTEGERS: Final = (
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "n",
    "seed",
    "top_k",
    "truncate_prompt_tokens",
)
_NUMBERS: Final = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "length_penalty",
)
_FLAGS: Final = (
    "ignore_eos",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "spaces_between_special_tokens",
)
_OTHERS: Final = (
    "bad_words",
    "logit_bias",
    "response_format",
    "stop_token_ids",
    "structured_outputs",
    "user",
)
_MOST_ANSWERS: Final = 128
_NOT_THERE: Final = {
    "logprobs": "return_logprobs",
    "token_ids": "return_token_ids",
    "prompt_logprobs": "return_prompt_logprobs",
    "cumulative_logprob": "return_cumulative_logprob",
}
"""Outputs that OpenAI's API does not tell, and the inputs that ask for them."""


def read_body(
    request: GenerationRequest, model: str, *, chat: bool
) -> tuple[bytes, dict[str, Any]]:
    """The body, and the parameters in it; raises `InvalidRequestError` that names what is wrong."""
    for output, asked in _NOT_THERE.items():
        if getattr(request.wanted, output):
            raise InvalidRequestError(f"input '{asked}': the remote does not tell {output}")
    given = _read_parameters(request.parameters or {})
    if request.wanted.num_output_tokens and given.get("n", 1) > 1:
        raise InvalidRequestError(
            "input 'return_num_output_tokens': the remote does not tell them of each of 'n' texts"
        )
    body: dict[str, Any] = {"model": model, **_prompt(request, chat=chat), **given}
    if request.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return orjson.dumps(body), given


def _prompt(request: GenerationRequest, *, chat: bool) -> Mapping[str, Any]:
    if request.input_ids is not None:
        if chat:
            raise InvalidRequestError("input 'input_ids': a chat takes text in 'text_input'")
        return {"prompt": request.input_ids.tolist()}
    if not request.prompt:
        raise InvalidRequestError("the prompt is empty: input 'text_input' must hold some text")
    if chat:
        return {"messages": [{"role": "user", "content": request.prompt}]}
    return {"prompt": request.prompt}


def _read_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with the types that JSON wants; unknown ones are refused by name.

    Their bounds are the remote's business.
    """
    reader = ParameterReader(given)
    read: dict[str, Any] = {}
    for names, reading in (
        (_INTEGERS, lambda name: reader.integer(name, None)),
        (_NUMBERS, lambda name: reader.number(name, 0.0)),
        (_FLAGS, lambda name: reader.boolean(name, False)),
        (_OTHERS, reader.anything),
        (("stop",), lambda name: list(reader.strings(name))),
    ):
        for name in names:
            value = reading(name)  # also of those not given, so that the reader knows their names
            if name in given:
                read[name] = value
    reader.refuse_unread(TITLE)
    check_stops(read.get("stop", ()))
    if not 1 <= read.get("n", 1) <= _MOST_ANSWERS:
        refuse("n", f"must be from 1 to {_MOST_ANSWERS}, not {read['n']}")
    return read
