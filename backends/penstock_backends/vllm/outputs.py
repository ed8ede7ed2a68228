"""Decoder of vLLM's outputs into an `Answer`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock_backends.language_model import Answer, Logprobs


def add_output(answer: Answer, output: Any) -> None:
    """Add one `RequestOutput`; it may hold only some of the candidates."""
    if output.prompt_token_ids is not None:
        answer.prompt_tokens = len(output.prompt_token_ids)
    for completion in output.outputs:
        candidate = answer.candidates[completion.index]
        candidate.add(completion.text, len(completion.token_ids))
        if completion.logprobs is not None:
            candidate.add_logprobs(_places(completion.logprobs), completion.cumulative_logprob)
        if completion.finish_reason is not None:
            candidate.finish_reason = completion.finish_reason


def _places(logprobs: Iterable[Mapping[int, Any]]) -> list[Logprobs]:
    return [{token: _token(logprob) for token, logprob in place.items()} for place in logprobs]


def _token(logprob: Any) -> dict[str, Any]:
    return {
        "logprob": logprob.logprob,
        "rank": logprob.rank,
        "decoded_token": logprob.decoded_token,
    }
