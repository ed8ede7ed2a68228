"""Reader of vLLM's outputs into the answer of a request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.backend import InternalError, Tensor
from penstock_backends.language_model import Answer, Logprobs, WantedOutputs
from penstock_backends.vllm.failures import ENDED
from penstock_backends.vllm.reasoning import ReasoningReader

_TEXT_ONLY = WantedOutputs()


class OutputReader:
    """Adds the outputs of one request to its answer; each may hold only some of the candidates.

    `parsers` split reasoning from the answer, one for each candidate, where that is asked for.
    """

    __slots__ = ("_answer", "_plain", "_prompt_logprobs", "_reasoning")

    def __init__(self, answer: Answer, parsers: Sequence[Any] = ()) -> None:
        self._reasoning = [
            ReasoningReader(parser, candidate, stream=answer.stream)
            for parser, candidate in zip(parsers, answer.candidates, strict=bool(parsers))
        ]
        self._answer = answer
        self._plain = answer.wanted == _TEXT_ONLY
        self._prompt_logprobs = False

    def add(self, output: Any) -> None:
        """Add one `RequestOutput`; raises `InternalError` if it ends the request with an error."""
        answer = self._answer
        if output.prompt_token_ids is not None:
            answer.prompt_tokens = len(output.prompt_token_ids)
        if output.prompt_logprobs and not self._prompt_logprobs:
            self._prompt_logprobs = True  # of several candidates each brings them
            answer.attach("prompt_logprobs", _prompt_logprobs(output.prompt_logprobs))
        if not self._plain:
            answer.cached_tokens = output.num_cached_tokens or 0
        if output.kv_transfer_params:  # with the last output, of a connector that has some
            text = json.dumps(output.kv_transfer_params, default=str)
            answer.attach("kv_transfer_params", Tensor.from_strings([text]))
        for completion in output.outputs:
            self._add_completion(completion)

    def _add_completion(self, completion: Any) -> None:
        if completion.finish_reason == "error":
            raise InternalError(ENDED)
        candidate = self._answer.candidates[completion.index]
        if self._reasoning:
            self._reasoning[completion.index].add(completion)
        else:
            candidate.add(completion.text, len(completion.token_ids))
        if completion.logprobs is not None:
            candidate.add_logprobs(_places(completion.logprobs), completion.cumulative_logprob)
        if not self._plain and self._answer.wanted.token_ids:
            candidate.token_ids.extend(completion.token_ids)
        if completion.finish_reason is not None:
            candidate.finish_reason = completion.finish_reason
            candidate.stop_reason = completion.stop_reason


def _prompt_logprobs(places: Iterable[Mapping[int, Any] | None]) -> Tensor:
    """One JSON list; the first place is `null`, since nothing predicts the first token."""
    found = [_place(place) if place else None for place in places]
    return Tensor.from_strings([json.dumps(found)])


def _places(logprobs: Iterable[Mapping[int, Any]]) -> list[Logprobs]:
    return [_place(place) for place in logprobs]


def _place(place: Mapping[int, Any]) -> Logprobs:
    return {token: _token(logprob) for token, logprob in place.items()}


def _token(logprob: Any) -> dict[str, Any]:
    return {
        "logprob": logprob.logprob,
        "rank": logprob.rank,
        "decoded_token": logprob.decoded_token,
    }
