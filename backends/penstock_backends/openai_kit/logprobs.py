"""Log probabilities in the forms of OpenAI's two endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock_backends.openai_kit.generator import Position, TokenProbability

_LOWEST = -9999.0
"""The logprob of an impossible token: JSON has no infinity."""


def chat_form(positions: Sequence[Position], top: int) -> dict[str, Any]:
    """`choices[].logprobs` of a chat; each position has `top` tokens."""
    content = [
        {**_chat_token(position[0]), "top_logprobs": [_chat_token(one) for one in position[:top]]}
        for position in positions
    ]
    return {"content": content, "refusal": None}


def completion_form(positions: Sequence[Position], top: int, offset: int) -> dict[str, Any]:
    """`choices[].logprobs` of a completion; `offset` is where its first token begins."""
    offsets = []
    for position in positions:
        offsets.append(offset)
        offset += len(position[0].text)
    return {
        "tokens": [position[0].text for position in positions],
        "token_logprobs": [_finite(position[0].logprob) for position in positions],
        "top_logprobs": [
            {one.text: _finite(one.logprob) for one in position[: top or 1]}
            for position in positions
        ],
        "text_offset": offsets,
    }


def _chat_token(token: TokenProbability) -> dict[str, Any]:
    octets = list(token.text.encode("utf-8", "replace"))
    return {"token": token.text, "logprob": _finite(token.logprob), "bytes": octets}


def _finite(value: float) -> float:
    return max(value, _LOWEST)
