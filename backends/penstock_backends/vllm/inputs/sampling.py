"""Sampling parameters as vLLM's own `SamplingParams`, checked before the engine sees them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from importlib import import_module
from typing import Any, Final

from penstock.backend import InvalidRequestError, suggestion
from penstock_backends.language_model import check_count, check_stops, refuse
from penstock_backends.language_model.constraints import NAME, check_constraint
from penstock_backends.language_model.parameters import decoded, refuse_unknown
from penstock_backends.language_model.stop_strings import MOST_CHARACTERS

BACKEND = "vllm"

TRANSFER = "kv_transfer_params"

_OURS = {
    "output_kind",
    "output_text_buffer_length",
    "prompt_logprob_start",
    "prompt_logprob_token_ids",
    "routed_experts_prompt_start",
    "skip_clone",
}
"""Fields that clients may not set: they choose the form of outputs, or are of ones not sent."""

_COMPOUND = (
    "allowed_token_ids",
    "bad_words",
    "extra_args",
    "logit_bias",
    "logprob_token_ids",
    "repetition_detection",
    "stop_token_ids",
    "trace_decode_token_ids",
)
"""Fields that are lists or objects, which may be JSON texts as well: request parameters are scalar.
Not `stop`, whose text is one stop string."""

_MOST_BAD_WORDS = 128
"""vLLM takes no more; it counts a word twice that has other tokens after a space."""

_MOST_WEIGHED = 1 << 15
"""Tokens that are allowed or have a bias: vLLM's processes take 2 to 7 us for each, one by one."""

_LOGPROBS = ("logprobs", "prompt_logprobs", "logprob_token_ids", "prompt_logprob_token_ids")


def read_sampling(
    given: Mapping[str, Any], *, stream: bool, logprobs: bool = True
) -> tuple[Any, str | None]:
    """vLLM's `SamplingParams`, and the name of the LoRA adapter; raises `InvalidRequestError`.

    `logprobs`: whether the engine supports log probabilities.

    A value of the wrong type crashes the engine's process, so types are checked here; numbers and
    booleans may be written as strings (GP2-07), lists and objects as JSON texts.
    """
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    values = dict(given)
    adapter = values.pop("lora_name", None)
    if adapter is not None and not isinstance(adapter, str):
        refuse("lora_name", "must be a string")
    values.update({name: decoded(values[name]) for name in _COMPOUND if name in values})
    _take_structure(values)
    _take_transfer(values)
    _refuse_unknown(values, SamplingParams.__struct_fields__)
    _refuse_unknown_keys(values)
    check_values(values, logprobs=logprobs)
    try:
        sampling = import_module("msgspec").convert(values, SamplingParams, strict=False)
    except Exception as error:  # msgspec's, and those of vLLM's own checks
        raise InvalidRequestError(f"sampling parameters are not valid: {error}") from error
    check_stops(sampling.stop)
    sampling.output_kind = RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY
    return sampling, adapter


def check_values(values: Mapping[str, Any], *, logprobs: bool) -> None:
    """Refuse values that the engine would crash at, or answer never; as `read_sampling` does.

    None of those that a request does not set may be in `values`.
    """
    if isinstance(stops := values.get("stop_token_ids"), list):
        check_count("stop_token_ids", stops)
    for name in ("allowed_token_ids", "logit_bias"):
        if isinstance(weighed := values.get(name), list | dict):
            check_count(name, weighed, _MOST_WEIGHED)
    if isinstance(words := values.get("bad_words"), list):
        _check_bad_words(words)
    encode = import_module("msgspec").msgpack.encode
    _refuse_unsendable(values, partial(encode, enc_hook=str))
    if not logprobs:
        _refuse_logprobs(values)


def _check_bad_words(words: Sequence[Any]) -> None:
    """Refuse words that take long to tokenize, for which all other requests would wait."""
    if len(words) > _MOST_BAD_WORDS:
        refuse("bad_words", f"must hold at most {_MOST_BAD_WORDS} words, not {len(words)}")
    characters = sum(len(str(word)) for word in words)
    if characters > MOST_CHARACTERS:
        most = f"must have at most {MOST_CHARACTERS} characters together"
        refuse("bad_words", f"{most}, not {characters}")


def _take_transfer(values: dict[str, Any]) -> None:
    """Pass `kv_transfer_params`, an object or JSON text, on to the engine's KV connector."""
    given = values.pop(TRANSFER, None)
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            given = 0  # no object, which is refused
    if given is None:
        return
    further = values.get("extra_args") or {}
    if not isinstance(given, dict):
        refuse(TRANSFER, "must be an object, or JSON text of one")
    if not isinstance(further, dict):
        refuse("extra_args", "must be an object")
    values["extra_args"] = {**further, TRANSFER: given}


def _refuse_logprobs(values: Mapping[str, Any]) -> None:
    for name in _LOGPROBS:
        if name in values:
            refuse(name, "needs a C++ compiler where vLLM runs on a CPU, and there is none")


def _refuse_unknown(values: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    known = [name for name in fields if not name.startswith("_") and name not in _OURS]
    for name in values:
        if name not in known:
            refuse_unknown(name, BACKEND, known)


def _refuse_unsendable(values: Mapping[str, Any], encode: Callable[[Any], bytes]) -> None:
    """Reject values that JSON can express but the message to the engine's process cannot.

    Otherwise encoding fails there silently, and vLLM keeps the request for ever.
    """
    for name, value in values.items():
        try:
            encode(value)
        except (OverflowError, UnicodeEncodeError, RecursionError) as error:
            refuse(name, f"cannot be encoded: {error}")


# -- objects among the parameters ------------------------------------------------------------------

_FORMER: Final = "guided_decoding"
_BACKEND: Final = "backend"
_BACKENDS: Final = (None, "auto", "xgrammar", "xgrammar:no-fallback")
"""Names of a backend that change nothing; any other is chosen for a whole model."""


def _take_structure(values: dict[str, Any]) -> None:
    """Convert the constraint in `values`: an object or JSON text, by the new or old name.

    Raises `InvalidRequestError` for one that is no object, or would take too long to compile.
    """
    old = values.pop(_FORMER, None)
    if old is not None and NAME not in values:
        values[NAME] = old
    structure = values.get(NAME)
    if isinstance(structure, str):
        try:
            structure = json.loads(structure)
        except (ValueError, RecursionError):
            refuse(NAME, "must be an object, or JSON text of one")
    if isinstance(structure, dict):
        check_constraint(structure)
        if structure.get(_BACKEND) not in _BACKENDS:
            refuse(
                NAME,
                f"cannot choose the backend {json.dumps(structure[_BACKEND])}: "
                "'structured_outputs_config' in model.json does, for all requests",
            )
        values[NAME] = {key: value for key, value in structure.items() if key != _BACKEND}


def _refuse_unknown_keys(values: Mapping[str, Any]) -> None:
    """Refuse keys of objects that vLLM's own classes would pass over without a word."""
    from vllm.sampling_params import RepetitionDetectionParams, StructuredOutputsParams

    for name, kind in (
        (NAME, StructuredOutputsParams),
        ("repetition_detection", RepetitionDetectionParams),
    ):
        given = values.get(name)
        if not isinstance(given, dict):
            continue
        known = [field.name for field in fields(kind) if field.init]
        for key in given:
            if key not in known:
                refuse(name, f"has no '{key}'{suggestion(str(key), known)}")
