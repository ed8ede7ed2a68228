"""Messages of engines' own gRPC services, by the stubs of the package `smg-grpc-proto`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from penstock.backend import BackendNotInstalledError, EngineFacts, InvalidRequestError
from penstock_backends.language_model import GenerationRequest, ParameterReader, check_stops, refuse

TITLE: Final = "remote"
NOT_INSTALLED: Final = (
    "the service of an engine needs the messages of the package: pip install smg-grpc-proto"
)


class TokenLogprobs(NamedTuple):
    """The log probability of a token, and pairs of the likeliest at its place and theirs."""

    token: int
    logprob: float
    top: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOutput:
    """Outcome of one of the answers: new tokens; or its end, with the last tokens or all of them.

    `finish_reason` is `None` while it goes on.
    """

    index: int = 0
    tokens: Sequence[int] = ()
    cached_tokens: int = 0
    logprobs: Sequence[TokenLogprobs] = ()
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class Service(NamedTuple):
    """An engine's service: its full name, and the modules of its messages.

    `names` are its names of sampling parameters where they are not vLLM's; an empty one says that
    it has no such parameter. `request` makes a request of sampling parameters, `outputs` reads an
    answer, of which so many tokens have come before; `tokens` is the field of a prompt's tokens,
    `id` that of the request's id. `calls` are the methods that have other names there.
    """

    name: str
    modules: Sequence[str]
    names: Mapping[str, str]
    whole_top_k: int
    """The number that says that all tokens are looked at."""
    request: Callable[[Any, Service, dict[str, Any]], Any]
    outputs: Callable[[Any, int], Sequence[EngineOutput]]
    tokens: str = "tokenized.input_ids"
    id: str = "request_id"
    calls: Mapping[str, Call] = {}

    def call(self, method: str) -> Call:
        """A method as this service has it."""
        plain = Call(f"/{self.name}/{method}", f"{method}Request", f"{method}Response")
        return self.calls.get(method, plain)


class Call(NamedTuple):
    """A method: its path, and the names of its messages."""

    path: str
    request: str
    answer: str


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
OURS: Final = "-"
"""The name of what is done with the text here, and need not be sent."""
_MOST_ANSWERS: Final = 128
_LARGEST: Final = (1 << 31) - 1


def messages(service: Service) -> Any:
    """All messages, as a module has them; raises `BackendNotInstalledError`."""
    try:
        modules = [import_module(one) for one in service.modules]
    except ImportError as error:
        raise BackendNotInstalledError(NOT_INSTALLED) from error
    found = SimpleNamespace()
    for module in modules:
        for name in module.DESCRIPTOR.message_types_by_name:
            setattr(found, name, getattr(module, name))
    return found


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
    try:
        return service.request(pb, service, _renamed(pb, service, read))
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"sampling parameters cannot be sent: {error}") from error


def _request_of(pb: Any, service: Service, sampling: dict[str, Any]) -> Any:
    """Of vLLM's or SGLang's service."""
    more: dict[str, Any] = {}
    if sampling.get("top_k", 0) <= 0:
        sampling["top_k"] = service.whole_top_k
    if "logprobs" not in pb.SamplingParams.DESCRIPTOR.fields_by_name:  # SGLang's
        sampling.setdefault("temperature", 1.0)
        if (count := sampling.pop("logprobs", None)) is not None:
            more = {"return_logprob": True, "top_logprobs_num": count}
    message = pb.SamplingParams(**sampling)
    return pb.GenerateRequest(sampling_params=message, stream=True, **more)


def _outputs_of(answer: Any, _: int) -> Sequence[EngineOutput]:
    """Of vLLM's or SGLang's service."""
    if not answer.HasField("complete"):
        chunk = answer.chunk
        given = chunk.output_logprobs
        places = _places(given) if given.token_ids else ()
        output = EngineOutput(
            index=chunk.index,
            tokens=chunk.token_ids,
            cached_tokens=chunk.cached_tokens,
            logprobs=places,
        )
        return (output,)
    end = answer.complete
    matched = end.WhichOneof("matched_stop")
    output = EngineOutput(
        index=end.index,
        tokens=end.output_ids,
        cached_tokens=end.cached_tokens,
        finish_reason=end.finish_reason or "stop",
        stop_reason=getattr(end, matched) if matched else None,
    )
    return (output,)


def _places(given: Any) -> list[TokenLogprobs]:
    places = []
    for at, token in enumerate(given.token_ids):
        top = given.top_logprobs[at] if at < len(given.top_logprobs) else None
        pairs = [] if top is None else [*zip(top.token_ids, top.values, strict=False)]
        places.append(TokenLogprobs(token, given.token_logprobs[at], pairs))
    return places


# -- TensorRT-LLM's service -----------------------------------------------------------------------

_OF_REQUEST: Final = (
    *("max_tokens", "stop", "stop_token_ids", "ignore_eos"),
    "include_stop_token_in_output",
)
_GUIDES: Final = {
    "json_object": "GUIDE_TYPE_JSON",
    "json_schema": "GUIDE_TYPE_JSON_SCHEMA",
    "regex": "GUIDE_TYPE_REGEX",
    "grammar": "GUIDE_TYPE_EBNF_GRAMMAR",
    "structural_tag": "GUIDE_TYPE_STRUCTURAL_TAG",
}
_LENGTH: Final = 16
"""Tokens of an answer for which nobody says how many: the service needs a number."""


def _trtllm_request(pb: Any, service: Service, given: dict[str, Any]) -> Any:
    of_request: dict[str, Any] = {"max_tokens": _LENGTH}
    of_request |= {name: given.pop(name) for name in _OF_REQUEST if name in given}
    if (count := given.pop("logprobs", None)) is not None:
        of_request["output_config"] = pb.OutputConfig(logprobs=count)
    for name, guide in _GUIDES.items():
        if name in given:
            value = given.pop(name)
            of_request["guided_decoding"] = pb.GuidedDecodingParams(
                guide_type=guide, guide="" if name == "json_object" else value
            )
    if given.get("top_k", 0) <= 0:
        given.pop("top_k", None)
    config = pb.SamplingConfig(beam_width=1, **given)
    return pb.GenerateRequest(sampling_config=config, streaming=True, **of_request)


def _trtllm_outputs(answer: Any, _: int) -> Sequence[EngineOutput]:
    if answer.WhichOneof("response") != "complete":
        chunk = answer.chunk
        places = [
            TokenLogprobs(
                one.token_id, one.logprob, [(top.token_id, top.logprob) for top in one.top_logprobs]
            )
            for one in chunk.logprobs
        ]
        output = EngineOutput(
            index=chunk.sequence_index,
            tokens=chunk.token_ids,
            cached_tokens=chunk.cached_tokens,
            logprobs=places,
        )
        return (output,)
    end = answer.complete
    matched = end.WhichOneof("matched_stop")
    reason = end.finish_reason or "stop"
    output = EngineOutput(
        index=end.sequence_index,
        tokens=end.output_token_ids,
        cached_tokens=end.cached_tokens,
        finish_reason="stop" if reason == "stop_word" else reason,
        stop_reason=getattr(end, matched) if matched else None,
    )
    return (output,)


def _renamed(pb: Any, service: Service, read: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling parameters in the names of the service."""
    given = dict(read)
    name, value = given.pop("constraint", ("", None))
    if name == "choice" and hasattr(pb, "ChoiceConstraint"):
        value = pb.ChoiceConstraint(choices=value)
    if name:
        given[name] = value
    for missing in [name for name in given if not service.names.get(name, name)]:
        refuse(missing, "is not supported by the remote's service")
    named = {service.names.get(name, name): value for name, value in given.items()}
    named.pop(OURS, None)
    return named


def abort_of(pb: Any, service: Service, request_id: str) -> Any:
    """The request to abort another."""
    if "request_ids" in pb.AbortRequest.DESCRIPTOR.fields_by_name:
        return pb.AbortRequest(request_ids=[request_id])
    return pb.AbortRequest(**{service.id: request_id})


_NOT_HEALTHY: Final = "the engine is not healthy"


def ill(found: Any) -> str | None:
    """Why an engine that has answered a question after its health is not well; `None` if it is."""
    status = getattr(found, "status", None)
    if isinstance(status, str):  # TensorRT-LLM's
        return None if status == "OK" else status[:500] or _NOT_HEALTHY
    if status is not None:  # that of gRPC's own health service
        return None if status == found.SERVING else _NOT_HEALTHY
    return None if found.healthy else getattr(found, "message", "")[:500] or _NOT_HEALTHY


def facts_of(info: Any) -> EngineFacts:
    """Facts of an engine's model, as far as it tells them."""
    if info is None:
        return EngineFacts()
    if "max_seq_len" in info.DESCRIPTOR.fields_by_name:  # TensorRT-LLM's
        return EngineFacts(model=info.model_id, context_length=info.max_seq_len)
    if "max_model_len" in info.DESCRIPTOR.fields_by_name:  # that of vLLM's own front end
        return EngineFacts(
            context_length=info.max_model_len,
            block_size=info.kv_block_size,
            max_running=info.max_running_requests,
        )
    if "json_info" in info.DESCRIPTOR.fields_by_name:  # that of SGLang's
        return EngineFacts(model=info.model_path)
    return EngineFacts(
        model=info.model_path,
        context_length=info.max_context_length,
        model_type=info.model_type,
        architectures=[*info.architectures],
        eos_token_ids=[*info.eos_token_ids],
        bos_token_id=info.bos_token_id,
        pad_token_id=info.pad_token_id,
    )


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


def _smg(module: str) -> Sequence[str]:
    return (f"smg_grpc_proto.generated.{module}_pb2",)


SMG_SERVICES: Final = {
    "vllm": Service(
        name="vllm.grpc.engine.VllmEngine",
        modules=_smg("vllm_engine"),
        names={},
        whole_top_k=0,
        request=_request_of,
        outputs=_outputs_of,
    ),
    "sglang": Service(
        name="sglang.grpc.scheduler.SglangScheduler",
        modules=_smg("sglang_scheduler"),
        names={
            "max_tokens": "max_new_tokens",
            "min_tokens": "min_new_tokens",
            "include_stop_str_in_output": "no_stop_trim",
            "grammar": "ebnf_grammar",
            "seed": "",
            "truncate_prompt_tokens": "",
            "choice": "",
            "json_object": "",
        },
        whole_top_k=-1,
        request=_request_of,
        outputs=_outputs_of,
    ),
    "trtllm": Service(
        name="trtllm.TrtllmService",
        modules=_smg("trtllm_service"),
        names={
            "n": "num_return_sequences",
            "include_stop_str_in_output": "include_stop_token_in_output",
            "truncate_prompt_tokens": "",
            "skip_special_tokens": "-",
            "spaces_between_special_tokens": "-",
            "choice": "",
        },
        whole_top_k=0,
        request=_trtllm_request,
        outputs=_trtllm_outputs,
        tokens="tokenized.input_token_ids",
    ),
}
"""By the parameter `protocol` of a model: those whose messages the package has."""
