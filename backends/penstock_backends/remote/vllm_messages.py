"""Messages of engines' own gRPC services, by the stubs of the package `smg-grpc-proto`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from penstock.backend import BackendNotInstalledError, InvalidRequestError
from penstock_backends.language_model import GenerationRequest, ParameterReader, check_stops, refuse

TITLE: Final = "remote"
NOT_INSTALLED: Final = (
    "the service of an engine needs the messages of the package: pip install smg-grpc-proto"
)


class Service(NamedTuple):
    """An engine's service: its full name, the module of its messages, and its names of sampling
    parameters where they are not vLLM's; an empty one says that it has no such parameter.
    """

    name: str
    module: str
    names: Mapping[str, str]
    whole_top_k: int
    """The number that says that all tokens are looked at."""


SERVICES: Final = {
    "vllm": Service("vllm.grpc.engine.VllmEngine", "vllm_engine_pb2", {}, 0),
    "sglang": Service(
        "sglang.grpc.scheduler.SglangScheduler",
        "sglang_scheduler_pb2",
        {
            "max_tokens": "max_new_tokens",
            "min_tokens": "min_new_tokens",
            "include_stop_str_in_output": "no_stop_trim",
            "grammar": "ebnf_grammar",
            "seed": "",
            "truncate_prompt_tokens": "",
            "choice": "",
            "json_object": "",
        },
        -1,
    ),
}
"""By the parameter `protocol` of a model."""

_NEUTRAL: Final[Mapping[str, Any]] = {
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "n": 1,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
}
"""Values that vLLM takes where nothing is said; protobuf's own 0 would mean something else."""

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


def messages(service: Service) -> Any:
    """The module of the messages; raises `BackendNotInstalledError`."""
    try:
        return import_module(f"smg_grpc_proto.generated.{service.module}")
    except ImportError as error:
        raise BackendNotInstalledError(NOT_INSTALLED) from error


def read_sampling(request: GenerationRequest) -> dict[str, Any]:
    """The sampling parameters in vLLM's names, with what is meant where nothing is said.

    `constraint` is a pair of a name and its value, `logprobs` how many are wanted. Raises
    `InvalidRequestError` that names what is wrong.
    """
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
    read |= _constraint(reader.anything("structured_outputs"))
    read |= _logprobs(reader, request)
    reader.refuse_unread(TITLE)
    check_stops(read.get("stop", ()))
    if not 1 <= read["n"] <= _MOST_ANSWERS:
        refuse("n", f"must be from 1 to {_MOST_ANSWERS}, not {read['n']}")
    return read


def request_of(pb: Any, service: Service, read: Mapping[str, Any]) -> Any:
    """The request with sampling parameters, and without its prompt and its id.

    Raises `InvalidRequestError` that names a parameter which the service has not.
    """
    sampling, more = _renamed(pb, service, read), {}
    if sampling.get("top_k", 0) <= 0:
        sampling["top_k"] = service.whole_top_k
    if "logprobs" not in pb.SamplingParams.DESCRIPTOR.fields_by_name:  # SGLang's
        sampling.setdefault("temperature", 1.0)
        if (count := sampling.pop("logprobs", None)) is not None:
            more = {"return_logprob": True, "top_logprobs_num": count}
    try:
        message = pb.SamplingParams(**sampling)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"sampling parameters cannot be sent: {error}") from error
    return pb.GenerateRequest(sampling_params=message, stream=True, **more)


def _renamed(pb: Any, service: Service, read: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling parameters in the names of the service."""
    given = dict(read)
    name, value = given.pop("constraint", ("", None))
    if name == "choice" and service.names.get(name, name):
        value = pb.ChoiceConstraint(choices=value)
    if name:
        given[name] = value
    for missing in [name for name in given if not service.names.get(name, name)]:
        refuse(missing, "is not supported by the remote's service")
    return {service.names.get(name, name): value for name, value in given.items()}


def abort_of(pb: Any, request_id: str) -> Any:
    """The request to abort another."""
    if "request_ids" in pb.AbortRequest.DESCRIPTOR.fields_by_name:
        return pb.AbortRequest(request_ids=[request_id])
    return pb.AbortRequest(request_id=request_id)


def _logprobs(reader: ParameterReader, request: GenerationRequest) -> dict[str, int]:
    count = reader.integer("logprobs", None, 0, 20)
    wanted = request.wanted
    if request.wanted.prompt_logprobs:
        raise InvalidRequestError("input 'return_prompt_logprobs' is not supported by the remote")
    if not (wanted.logprobs or wanted.cumulative_logprob):
        return {}
    return {"logprobs": 1 if count is None else count}


def _constraint(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or len(given) != 1:
        refuse("structured_outputs", "must be an object with one constraint")
    [(name, value)] = given.items()
    if name == "choice" and isinstance(value, Sequence) and not isinstance(value, str):
        return {"constraint": (name, [str(one) for one in value])}
    if name not in _CONSTRAINTS:
        refuse("structured_outputs", f"has the unknown constraint '{str(name)[:50]}'")
    if name == "json" and not isinstance(value, str):
        value = json.dumps(value)
    return {"constraint": (_CONSTRAINTS[name], value)}
