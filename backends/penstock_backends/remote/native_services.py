"""Services of engines' own front ends: `vllm.Inference` with `vllm.Control`, SGLang's runtime."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.backend import InvalidRequestError
from penstock_backends.remote.vllm_messages import (
    OURS,
    SMG_SERVICES,
    Call,
    EngineOutput,
    Service,
    TokenLogprobs,
)

_LENGTH: Final = 16
"""Tokens of an answer for which nobody says how many, as for vLLM's Python API."""

# -- vLLM's front end -----------------------------------------------------------------------------

_RANDOM: Final = ("num_sequences", "top_k", "top_p", "min_p", "seed")
_DECODING: Final = (
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("json", "regex", "choice", "grammar", "json_object", "structural_tag"),
)
_STOPPING: Final = (
    *("max_new_tokens", "min_new_tokens", "stop_token_ids", "stop_strings"),
    *("include_stop_strings", "ignore_eos"),
)
_REASONS: Final = {1: "length", 2: "stop", 3: "abort"}


def _vllm_request(pb: Any, service: Service, given: dict[str, Any]) -> Any:
    """Without a temperature the service would be greedy, and other engines are not."""
    given = {"temperature": 1.0, "max_new_tokens": _LENGTH, **given}
    options = pb.ResponseOptions(output_text=False, output_token_ids=True)
    if (count := given.pop("logprobs", None)) is not None:
        options.output_logprobs = True
        options.output_candidates.top_n = count
    if given.get("top_k", 0) <= 0:
        given.pop("top_k", None)
    if "choice" in given:
        given["choice"] = pb.DecodingParameters.StringChoices(choices=given["choice"])
    return pb.GenerateRequest(
        sampling=pb.RandomSampling(**_taken(given, _RANDOM)),
        decoding=pb.DecodingParameters(**_taken(given, _DECODING)),
        stopping=pb.StoppingCriteria(**_taken(given, _STOPPING)),
        response=options,
        **given,
    )


def _taken(given: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: given.pop(name) for name in names if name in given}


def _vllm_outputs(answer: Any, _: int) -> Sequence[EngineOutput]:
    """New tokens, and the end where it has come; a stream's first message has neither."""
    if not answer.HasField("outputs"):
        return ()
    given = answer.outputs
    outputs: list[EngineOutput] = []
    if given.token_ids:
        places = _vllm_places(given)
        outputs.append(EngineOutput(index=given.index, tokens=given.token_ids, logprobs=places))
    if given.HasField("finish_info"):
        end = given.finish_info
        matched = end.WhichOneof("stop_reason")
        told = matched is not None and matched != "eos_token_id"  # which is no stop of the client's
        reason = _REASONS.get(end.finish_reason, "error")
        stop = getattr(end, matched) if matched and told else None
        end_of_it = EngineOutput(index=given.index, finish_reason=reason, stop_reason=stop)
        outputs.append(end_of_it)
    return outputs


def _vllm_places(given: Any) -> Sequence[TokenLogprobs]:
    if not given.logprobs:
        return ()
    tops = [[(one.id, one.logprob) for one in place.tokens] for place in given.candidate_tokens]
    return [
        TokenLogprobs(token, value, tops[at] if at < len(tops) else ())
        for at, (token, value) in enumerate(zip(given.token_ids, given.logprobs, strict=True))
    ]


# -- SGLang's front end ---------------------------------------------------------------------------


def _sglang_request(pb: Any, service: Service, given: dict[str, Any]) -> Any:
    """The service has an `n`, but its answers do not say which of the texts they belong to."""
    if given.pop("n") != 1:
        raise InvalidRequestError("'n' is not supported by the remote's service")
    more: dict[str, Any] = {}
    if (count := given.pop("logprobs", None)) is not None:
        more = {"return_logprob": True, "top_logprobs_num": count}
    given = {"temperature": 1.0, "max_new_tokens": _LENGTH, **given}
    if given.get("top_k", 0) <= 0:
        given["top_k"] = service.whole_top_k
    return pb.GenerateRequest(sampling_params=pb.SamplingParams(**given), stream=True, **more)


def _sglang_outputs(answer: Any, seen: int) -> Sequence[EngineOutput]:
    """New tokens, and the end where it has come.

    A server sends all tokens so far with each message, or only the new ones, as it was started;
    their number, which it tells besides, says which. Raises `ValueError` for what is none.
    """
    tokens, told = answer.output_ids, answer.meta_info
    if len(tokens) == int(told.get("completion_tokens", -1)):
        tokens = tokens[seen:]
    cached = int(told.get("cached_tokens") or 0)
    outputs = []
    if tokens:
        places = _sglang_places(told, len(tokens))
        if places and [one.token for one in places] != [*tokens]:
            raise ValueError("it has log probabilities of other tokens")
        outputs.append(EngineOutput(tokens=tokens, cached_tokens=cached, logprobs=places))
    if answer.finished:
        reason, stop = _sglang_end(told.get("finish_reason", ""))
        outputs.append(EngineOutput(cached_tokens=cached, finish_reason=reason, stop_reason=stop))
    return outputs


def _sglang_places(told: Mapping[str, str], count: int) -> Sequence[TokenLogprobs]:
    """The log probabilities of the last `count` tokens; nothing where none are told."""
    if "output_token_logprobs" not in told:
        return ()
    chosen = json.loads(told["output_token_logprobs"])
    tops = json.loads(told.get("output_top_logprobs", "[]"))
    try:
        tops = tops[-count:] if tops else [()] * count
        return [
            TokenLogprobs(
                token=int(token),
                logprob=float(value),
                top=[(int(other), float(its)) for its, other, _ in top or ()],
            )
            for (value, token, _), top in zip(chosen[-count:], tops, strict=True)
        ]
    except (TypeError, KeyError) as error:
        raise ValueError(f"its log probabilities are none: {error}") from error


def _sglang_end(text: str) -> tuple[str, int | str | None]:
    """Why an answer has ended, and by which stop, from JSON or a plain word."""
    given = json.loads(text) if text.startswith(("{", '"')) else text or "stop"
    if not isinstance(given, Mapping):
        return str(given), None
    matched = given.get("matched")
    known = isinstance(matched, int | str) and not isinstance(matched, bool)
    return str(given.get("type", "stop")), matched if known else None


_HEALTH: Final = Call("/grpc.health.v1.Health/Check", "HealthCheckRequest", "HealthCheckResponse")

_STREAMED: Final = Call("/vllm.Inference/GenerateStream", "GenerateRequest", "GenerateResponse")
_INFO: Final = Call("/vllm.Control/GetServerInfo", "GetServerInfoRequest", "ServerInfo")

SERVICES: Final = {
    **SMG_SERVICES,
    "vllm_inference": Service(
        name="vllm.Inference",
        modules=("penstock.protocol.vllm_inference_pb2", "penstock.protocol.health_pb2"),
        names={
            "n": "num_sequences",
            "max_tokens": "max_new_tokens",
            "min_tokens": "min_new_tokens",
            "stop": "stop_strings",
            "include_stop_str_in_output": "include_stop_strings",
            "json_schema": "json",
            "skip_special_tokens": OURS,
            "spaces_between_special_tokens": OURS,
        },
        whole_top_k=0,
        request=_vllm_request,
        outputs=_vllm_outputs,
        tokens="token_ids.ids",
        calls={
            "Generate": _STREAMED,
            "Abort": Call("/vllm.Control/Abort", "AbortRequest", "AbortResponse"),
            "HealthCheck": _HEALTH,
            "GetModelInfo": _INFO,
        },
    ),
    "sglang_runtime": Service(
        name="sglang.runtime.v1.SglangService",
        modules=("penstock.protocol.sglang_runtime_pb2",),
        names={
            "max_tokens": "max_new_tokens",
            "min_tokens": "min_new_tokens",
            "skip_special_tokens": OURS,
            "spaces_between_special_tokens": OURS,
            "include_stop_str_in_output": OURS,
            **dict.fromkeys(("seed", "truncate_prompt_tokens", "choice", "json_object"), ""),
            **dict.fromkeys(("grammar", "structural_tag"), ""),
        },
        whole_top_k=-1,
        request=_sglang_request,
        outputs=_sglang_outputs,
        tokens="input_ids",
        id="rid",
    ),
}
"""By the parameter `protocol` of a model."""
