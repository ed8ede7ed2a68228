"""`Generate` and `Embed` of vLLM's engine service: messages to tensors of language models and back.

A field that cannot be kept is refused by its name. Meaning and defaults are vLLM's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from penstock.core.engine_facts import FIRST_TOKEN
from penstock.core.errors import InternalError, InvalidRequestError, UnsupportedError
from penstock.core.request import InferenceRequest, InferenceResponse, RequestScope
from penstock.core.tensor import DataType, Tensor
from penstock.protocol import vllm_engine_pb2 as pb
from penstock.server.answers import Engine

EMBEDDING: Final = "EMBEDDING"
TRANSFER: Final = "kv_transfer_params"

_LARGEST_TOKEN: Final = (1 << 31) - 1
_RUNNING: Final = b"None"
"""The finish reason of an answer that goes on."""
_MOST_ANSWERS: Final = 1024
_TRUE: Final = Tensor.from_numpy(np.array([True]), DataType.BOOL)
_FALSE: Final = Tensor.from_numpy(np.array([False]), DataType.BOOL)
_NO_TOKENS: Final = np.empty(0, np.int32)
_NO_TEXT: Final = Tensor.from_strings([""])
_WANTED: Final = ("token_ids", "finish_reason", "stop_reason", "num_input_tokens")
_OPTIONAL: Final = ("temperature", "logprobs", "prompt_logprobs", "seed", "max_tokens")
_NEUTRAL: Final[Mapping[str, float]] = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_tokens": 0,
    "n": 1,
    "ignore_eos": False,
    "include_stop_str_in_output": False,
}
"""Values that say nothing, besides 0, which a message has where nobody has set any."""
_CONSTRAINTS: Final = {"json_schema": "json"}
"""Kinds of structured outputs by their fields, where these differ."""


def request_of(
    message: pb.GenerateRequest, engine: Engine, scope: RequestScope
) -> InferenceRequest:
    """The request to a language model; raises an error that names the field that it cannot keep."""
    _refuse_fields(message)
    declared = {one.name: one for one in engine.model.config.input}
    sampling = message.sampling_params
    prompt, length = _prompt(message, engine)
    inputs = {**prompt, "stream": _TRUE if message.stream else _FALSE}
    if "text_input" not in prompt and (text := declared.get("text_input")) and not text.optional:
        inputs["text_input"] = _NO_TEXT
    inputs |= {f"return_{name}": _TRUE for name in _WANTED}
    if sampling.n > 1:
        inputs["return_num_output_tokens"] = _TRUE
    if sampling.HasField("logprobs"):
        inputs["return_logprobs"] = _TRUE
    if sampling.HasField("prompt_logprobs"):
        if "return_prompt_logprobs" not in declared:
            raise UnsupportedError(_of_engine("prompt_logprobs"))
        inputs["return_prompt_logprobs"] = _TRUE
    if "return_num_cached_tokens" in declared:
        inputs["return_num_cached_tokens"] = _TRUE
    parameters = json.dumps(_parameters(message, engine, length))
    inputs["sampling_parameters"] = Tensor.from_strings([parameters])
    return InferenceRequest(engine.name, id=message.request_id, inputs=inputs, scope=scope)


def embedding_of(message: pb.EmbedRequest, engine: Engine, scope: RequestScope) -> InferenceRequest:
    """The request to a model that embeds; raises for one that does not."""
    if EMBEDDING not in {one.name for one in engine.model.config.output}:
        raise UnsupportedError(f"model '{engine.name}' makes no embeddings of tokens")
    ids = _token_tensor(message.tokenized.input_ids)
    return InferenceRequest(
        engine.name,
        id=message.request_id,
        inputs={"input_ids": ids},
        requested_outputs=(EMBEDDING,),
        scope=scope,
    )


def embedded(message: pb.EmbedRequest, response: InferenceResponse) -> pb.EmbedResponse:
    """The answer of a model that embeds."""
    if response.error is not None:
        raise response.error
    found = response.outputs.get(EMBEDDING)
    if found is None:
        raise InternalError("the model has answered without an embedding")
    values = found.numpy().ravel()
    tokens = len(message.tokenized.input_ids)
    return pb.EmbedResponse(embedding=values, prompt_tokens=tokens, embedding_dim=values.size)


def _refuse_fields(message: pb.GenerateRequest) -> None:
    for name in ("mm_inputs", "media_refs", "kv_transfer_params"):
        if message.HasField(name):
            raise UnsupportedError(f"field '{name}' is not supported")
    if message.extra_mm_inputs:
        raise UnsupportedError("field 'extra_mm_inputs' is not supported")


def _of_engine(field: str) -> str:
    return f"field '{field}' is not supported by the model's engine"


def _prompt(message: pb.GenerateRequest, engine: Engine) -> tuple[dict[str, Tensor], int]:
    """The input with the prompt, and its tokens, as far as they are known."""
    sampling = message.sampling_params
    last = sampling.truncate_prompt_tokens if sampling.HasField("truncate_prompt_tokens") else None
    if message.WhichOneof("input") == "text":
        if last is not None:
            raise UnsupportedError("field 'truncate_prompt_tokens' needs a prompt in tokens")
        prompt = {"text_input": Tensor.from_strings([message.text])}
        return (prompt if message.stream else {**prompt, "exclude_input_in_output": _TRUE}), 0
    ids: Sequence[int] = message.tokenized.input_ids
    if last is not None:
        if last == -1 and not (last := engine.facts.context_length):
            raise InvalidRequestError(
                "field 'truncate_prompt_tokens' is -1, but the model's context length is not known"
                " now: give a number of tokens"
            )
        if last < 1:
            raise InvalidRequestError("field 'truncate_prompt_tokens' must be -1 or positive")
        ids = ids[-last:]
    if 0 < engine.facts.context_length < len(ids):
        raise InvalidRequestError(
            f"the prompt has {len(ids)} tokens, and the model's context"
            f" {engine.facts.context_length}"
        )
    return {"input_ids": _token_tensor(ids)}, len(ids)


def _token_tensor(ids: Sequence[int]) -> Tensor:
    if not ids:
        raise InvalidRequestError("the prompt is empty: field 'tokenized' must hold token ids")
    array = np.array(ids, np.int64)
    if array.max() > _LARGEST_TOKEN:
        raise InvalidRequestError(f"field 'input_ids' holds {array.max()}, which is no token id")
    return Tensor.from_numpy(array.astype(np.int32), DataType.INT32)


def _parameters(message: pb.GenerateRequest, engine: Engine, length: int) -> dict[str, Any]:
    """The sampling parameters in vLLM's names: those that say something."""
    sampling, context = message.sampling_params, engine.facts.context_length
    if sampling.n > _MOST_ANSWERS:
        raise InvalidRequestError(f"field 'n' must be at most {_MOST_ANSWERS}, not {sampling.n}")
    found = {name: getattr(sampling, name) for name in _OPTIONAL if sampling.HasField(name)}
    found |= {
        name: value
        for name, neutral in _NEUTRAL.items()
        if (value := getattr(sampling, name)) not in (0, neutral)
    }
    if "max_tokens" not in found and context:
        found["max_tokens"] = max(context - length, 1)
    return found | _stops(sampling) | _structure(sampling, engine) | _for_engine(message, engine)


def _stops(sampling: pb.SamplingParams) -> dict[str, Any]:
    """What ends the answer, or makes a token likelier."""
    found: dict[str, Any] = {}
    if sampling.stop:
        found = {"stop": [*sampling.stop], "skip_special_tokens": sampling.skip_special_tokens}
    if sampling.stop_token_ids:
        found["stop_token_ids"] = [*sampling.stop_token_ids]
    if sampling.logit_bias:
        found["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
    return found


def _structure(sampling: pb.SamplingParams, engine: Engine) -> dict[str, Any]:
    kind = sampling.WhichOneof("constraint")
    if not kind:
        return {}
    if sampling.grammar_from_first_token and engine.facts.constraints_start != FIRST_TOKEN:
        raise UnsupportedError(_of_engine("grammar_from_first_token"))
    value: Any = getattr(sampling, kind)
    value = [*value.choices] if kind == "choice" else value
    return {"structured_outputs": {_CONSTRAINTS.get(kind, kind): value}}


def _for_engine(message: pb.GenerateRequest, engine: Engine) -> dict[str, Any]:
    """What only some engines take, and refuse by themselves otherwise."""
    found: dict[str, Any] = {}
    if message.HasField("data_parallel_rank"):
        found["data_parallel_rank"] = message.data_parallel_rank
    if message.HasField("kv_transfer_params_json"):
        if TRANSFER not in {one.name for one in engine.model.config.output}:
            raise UnsupportedError(_of_engine("kv_transfer_params_json"))
        found[TRANSFER] = message.kv_transfer_params_json
    return found


class Answers:
    """The messages of one `request` to a model, from its responses.

    Of a stream, each response gives a chunk for every answer that has grown, and the end of one a
    complete message, which repeats the last tokens, as vLLM's does; without a stream there are only
    complete messages, with everything.
    """

    def __init__(self, message: pb.GenerateRequest, request: InferenceRequest) -> None:
        sampling, prompt = message.sampling_params, request.inputs.get("input_ids")
        self._stream = message.stream
        self._count = max(sampling.n, 1)
        self._top: int = sampling.logprobs if sampling.HasField("logprobs") else 0
        self._prompt_top: int = (
            sampling.prompt_logprobs if sampling.HasField("prompt_logprobs") else 0
        )
        self._prompt_ids = _NO_TOKENS if prompt is None else prompt.numpy()
        self._ended = [False] * self._count
        self._input: pb.InputLogProbs | None = None
        self._prompt_tokens = len(self._prompt_ids)
        self._cached = 0
        self._transfer: str | None = None

    def messages(self, response: InferenceResponse) -> Iterator[pb.GenerateResponse]:
        """The messages of a response; raises its error."""
        if response.error is not None:
            raise response.error
        outputs = response.outputs
        self._note(outputs)
        if "finish_reason" not in outputs:
            return
        reasons, stops = outputs["finish_reason"].elements(), outputs["stop_reason"].elements()
        places = outputs["logprobs"].elements() if "logprobs" in outputs else ()
        for index, tokens in enumerate(self._tokens(outputs)):
            if self._ended[index]:
                continue
            logprobs = _output_logprobs(tokens, places[index], self._top) if places else None
            if self._stream and tokens:
                yield self._chunk(index, tokens, logprobs)
            if (reason := reasons[index]) != _RUNNING:
                yield self._complete(index, tokens, logprobs, reason.decode(), stops[index])

    def _note(self, outputs: Mapping[str, Tensor]) -> None:
        """What is told once."""
        if "num_input_tokens" in outputs:
            self._prompt_tokens = int(outputs["num_input_tokens"].numpy()[0])
        if "num_cached_tokens" in outputs:
            self._cached = int(outputs["num_cached_tokens"].numpy()[0])
        if "prompt_logprobs" in outputs:
            self._input = self._input_logprobs(outputs["prompt_logprobs"])
        if TRANSFER in outputs:
            self._transfer = outputs[TRANSFER].elements()[0].decode()

    def aborted(self) -> Iterator[pb.GenerateResponse]:
        """The ends of answers that somebody has aborted."""
        for index, ended in enumerate(self._ended):
            if not ended:
                yield self._complete(index, (), None, "abort", b"null")

    def _tokens(self, outputs: Mapping[str, Tensor]) -> Sequence[Sequence[int]]:
        """The new tokens of each answer."""
        ids = outputs["token_ids"].numpy().tolist()
        if self._count == 1:
            return (ids,)
        left = iter(ids)
        return [list(islice(left, n)) for n in outputs["num_output_tokens"].numpy().tolist()]

    def _chunk(
        self, index: int, tokens: Sequence[int], logprobs: pb.OutputLogProbs | None
    ) -> pb.GenerateResponse:
        first, self._input = self._input, None
        return pb.GenerateResponse(
            chunk=pb.GenerateStreamChunk(
                token_ids=tokens,
                prompt_tokens=self._prompt_tokens,
                completion_tokens=len(tokens),
                cached_tokens=self._cached,
                output_logprobs=logprobs,
                input_logprobs=first,
                index=index,
            )
        )

    def _complete(
        self,
        index: int,
        tokens: Sequence[int],
        logprobs: pb.OutputLogProbs | None,
        reason: str,
        stop: bytes,
    ) -> pb.GenerateResponse:
        self._ended[index] = True
        complete = pb.GenerateComplete(
            output_ids=tokens,
            finish_reason=reason,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=len(tokens),
            cached_tokens=self._cached,
            output_logprobs=logprobs,
            input_logprobs=self._input,
            index=index,
        )
        if self._transfer is not None:
            complete.kv_transfer_params_json = self._transfer
        matched = json.loads(stop)
        if isinstance(matched, str):
            complete.matched_stop_str = matched
        elif isinstance(matched, int):
            complete.matched_token_id = matched
        return pb.GenerateResponse(complete=complete)

    def _input_logprobs(self, given: Tensor) -> pb.InputLogProbs:
        """Those of the prompt, whose first token has none."""
        found = pb.InputLogProbs()
        (text,) = given.elements()
        for at, place in enumerate(json.loads(text) or ()):
            token = int(self._prompt_ids[at]) if at < len(self._prompt_ids) else _chosen(place)
            one = found.token_logprobs.add()
            found.token_ids.append(token)
            if place is not None and (told := place.get(str(token))) is not None:
                one.value = told["logprob"]
            if self._prompt_top:
                found.top_logprobs.append(_top(place or {}, self._prompt_top))
        return found


def _chosen(place: Mapping[str, Any] | None) -> int:
    """The token of a position of a prompt that came as text: that which is told first."""
    return int(next(iter(place))) if place else 0


def _output_logprobs(tokens: Sequence[int], text: bytes, top: int) -> pb.OutputLogProbs | None:
    places = json.loads(text)
    if not places:
        return None
    found = pb.OutputLogProbs()
    for token, place in zip(tokens, places, strict=False):
        if (told := place.get(str(token))) is None:
            continue
        found.token_logprobs.append(told["logprob"])
        found.token_ids.append(token)
        if top:
            found.top_logprobs.append(_top(place, top))
    return found


def _top(place: Mapping[str, Any], count: int) -> pb.TopLogProbs:
    pairs = [*islice(place.items(), count if count > 0 else len(place))]
    return pb.TopLogProbs(
        values=[told["logprob"] for _, told in pairs], token_ids=[int(token) for token, _ in pairs]
    )
