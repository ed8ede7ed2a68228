"""Sampling parameters of a request, in vLLM's names; fields that cannot be kept are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from penstock_backends.language_model import WITHOUT_EFFECT
from penstock_backends.openai_kit.errors import refuse_field
from penstock_backends.openai_kit.schemas import without_references

FURTHER_FIELDS: Final = (
    "ignore_eos",
    "include_stop_str_in_output",
    "min_p",
    "min_tokens",
    "priority",
    "repetition_penalty",
    "return_token_ids",
    "skip_special_tokens",
    "stop_token_ids",
    "structured_outputs",
    "top_k",
)
"""Fields that OpenAI's API does not have, named as in vLLM's."""

_PASSED: Final = (
    "frequency_penalty",
    "n",
    "presence_penalty",
    "seed",
    "stop",
    "temperature",
    "top_p",
    *(name for name in FURTHER_FIELDS if name not in ("priority", "return_token_ids")),
)
_LENGTHS: Final = ("max_completion_tokens", "max_tokens")
"""Fields that limit an answer; the first that is given counts."""
_MOST_STOPS: Final = 64
_HIGHEST_TOP_LOGPROBS: Final = 20

INSTEAD: Final[Mapping[str, str]] = {
    "function_call": "'function_call' is not supported: use 'tool_choice'",
    "functions": "'functions' is not supported: use 'tools'",
    "logit_bias": "logit bias is not currently supported",
    "suffix": "suffix is not currently supported",
}
"""Longer refusals; of what Triton refuses too, in its words (OA-13), which editors know."""


def refuse_ineffective(fields: Mapping[str, Any]) -> None:
    """Refuse by name a field that would be without effect."""
    for name, harmless in WITHOUT_EFFECT.items():
        if name in fields and fields[name] not in harmless:
            text = INSTEAD.get(name, f"'{name}' is not supported")
            refuse_field(name, text, "unsupported_parameter")


def sampling_parameters(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling parameters of chats and completions; lengths, logprobs and form come on top."""
    stop = fields.get("stop", ())
    if isinstance(stop, list) and len(stop) > _MOST_STOPS:
        refuse_field("stop", f"'stop' holds {len(stop)} texts, more than {_MOST_STOPS}")
    return {name: fields[name] for name in _PASSED if name in fields}


def asked_length(fields: Mapping[str, Any], most: int, bound: str = "") -> int | None:
    """The tokens of an answer that a request asks for; `None` if it names none.

    Raises `ApiError` unless they are from 1 to `most`; `bound` says in the error what that is.
    """
    field = next((name for name in _LENGTHS if name in fields), _LENGTHS[-1])
    asked: int | None = fields.get(field)
    if asked is not None and not 1 <= asked <= most:
        refuse_field(field, f"'{field}' must be from 1 to {most}{bound}, not {asked}")
    return asked


def chat_logprobs(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The log probabilities that a chat asks for, as vLLM's parameter."""
    top = fields.get("top_logprobs", 0)
    if top and not fields.get("logprobs"):
        text = "`top_logprobs` can only be used when `logprobs` is True"  # Triton's (OA-13)
        refuse_field("top_logprobs", text)
    if not 0 <= top <= _HIGHEST_TOP_LOGPROBS:
        refuse_field(
            "top_logprobs", f"'top_logprobs' must be from 0 to {_HIGHEST_TOP_LOGPROBS}, not {top}"
        )
    return {"logprobs": top} if fields.get("logprobs") else {}


def response_form(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The form that `response_format` demands, as vLLM's `structured_outputs`."""
    wanted = fields.get("response_format", {"type": "text"})
    if wanted["type"] == "text":
        return {}
    if fields.get("structured_outputs"):
        refuse_field("response_format", "give 'response_format' or 'structured_outputs', not both")
    if wanted["type"] == "json_object":
        return {"structured_outputs": {"json": {"type": "object"}}}
    schema = wanted["json_schema"].get("schema")
    if schema is None:
        refuse_field("response_format", "response_format.json_schema has no 'schema'")
    return form_of_schema(without_references(schema, "response_format"))


def form_of_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The constraint of an answer that must fit a schema."""
    return {"structured_outputs": {"json": json.dumps(schema)}}
