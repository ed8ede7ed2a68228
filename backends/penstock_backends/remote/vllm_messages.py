"""Messages of `vllm.grpc.engine.VllmEngine`, by the stubs of the package `smg-grpc-proto`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from penstock.backend import BackendNotInstalledError, InvalidRequestError
from penstock_backends.language_model import GenerationRequest, ParameterReader, check_stops, refuse

SERVICE: Final = "vllm.grpc.engine.VllmEngine"
TITLE: Final = "remote"
NOT_INSTALLED: Final = (
    "protocol 'vllm' needs the messages of that service: pip install smg-grpc-proto"
)

_NEUTRAL: Final[Mapping[str, Any]] = {
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "n": 1,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
}
"""What vLLM takes where nothing is said; 0, protobuf's own default, would mean something else."""

_INTEGERS: Final = ("max_tokens", "min_tokens", "n", "seed", "top_k", "truncate_prompt_tokens")
_NUMBERS: Final = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)
_FLAGS: Final = (
    "ignore_eos",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "spaces_between_special_tokens",
)
_CONSTRAINTS: Final = {
    "json": "json_schema",
    "regex": "regex",
    "grammar": "grammar",
    "structural_tag": "structural_tag",
    "json_object": "json_object",
}
_MOST_ANSWERS: Final = 128
_LARGEST: Final = (1 << 31) - 1


def messages() -> Any:
    """The module of the messages; raises `BackendNotInstalledError`."""
    try:
        return import_module("smg_grpc_proto.generated.vllm_engine_pb2")
    except ImportError as error:
        raise BackendNotInstalledError(NOT_INSTALLED) from error


def sampling_of(pb: Any, request: GenerationRequest) -> Any:
    """The sampling parameters; raises `InvalidRequestError` that names one that cannot be kept."""
    given = request.parameters or {}
    reader = ParameterReader(given)
    read: dict[str, Any] = dict(_NEUTRAL)
    for names, reading in (
        (_INTEGERS, lambda name: reader.integer(name, None, -1, _LARGEST)),
        (_NUMBERS, lambda name: reader.number(name, 0.0)),
        (_FLAGS, lambda name: reader.boolean(name, False)),
        (("stop",), reader.strings),
        (("stop_token_ids",), lambda name: reader.integers(name, 0, _LARGEST)),
    ):
        for name in names:
            value = reading(name)  # also of those not given, so that the reader knows their names
            if name in given:
                read[name] = value
    read |= _constraint(pb, reader.anything("structured_outputs"))
    read |= _logprobs(reader, request)
    reader.refuse_unread(TITLE)
    check_stops(read.get("stop", ()))
    if not 1 <= read["n"] <= _MOST_ANSWERS:
        refuse("n", f"must be from 1 to {_MOST_ANSWERS}, not {read['n']}")
    if read.get("top_k") == -1:  # all of them, as 0
        del read["top_k"]
    try:
        return pb.SamplingParams(**read)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"sampling parameters cannot be sent: {error}") from error


def _logprobs(reader: ParameterReader, request: GenerationRequest) -> dict[str, int]:
    count = reader.integer("logprobs", None, 0, 20)
    wanted = request.wanted
    if request.wanted.prompt_logprobs:
        raise InvalidRequestError("input 'return_prompt_logprobs' is not supported by the remote")
    if not (wanted.logprobs or wanted.cumulative_logprob):
        return {}
    return {"logprobs": 1 if count is None else count}


def _constraint(pb: Any, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or len(given) != 1:
        refuse("structured_outputs", "must be an object with one constraint")
    [(name, value)] = given.items()
    if name == "choice" and isinstance(value, Sequence) and not isinstance(value, str):
        return {"choice": pb.ChoiceConstraint(choices=[str(one) for one in value])}
    if name not in _CONSTRAINTS:
        refuse("structured_outputs", f"has the unknown constraint '{str(name)[:50]}'")
    if name == "json" and not isinstance(value, str):
        import json

        value = json.dumps(value)
    return {_CONSTRAINTS[name]: value}
