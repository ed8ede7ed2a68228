"""Limits on what waits for a language model's engine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError

MAX_REQUESTS: Final = "penstock.max_queued_requests"
MAX_TOKENS: Final = "penstock.max_queued_tokens"


class Refusal(StrEnum):
    """Why a request is not admitted; the label of a metric."""

    REQUESTS = "queue_requests"
    TOKENS = "queue_tokens"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Most requests, and prompt tokens, that may wait for their first token; 0 for no limit."""

    requests: int = 0
    tokens: int = 0

    @classmethod
    def from_config(cls, config: ModelConfig) -> QueueLimits:
        """Read the limits; raises `ConfigError` for what is not a number."""
        return cls(_number(config, MAX_REQUESTS), _number(config, MAX_TOKENS))

    def __bool__(self) -> bool:
        return bool(self.requests or self.tokens)

    def refusal(self, requests: int, tokens: int, more: int) -> Refusal | None:
        """Why a prompt of `more` tokens may not join so many requests and tokens, if so.

        Where nothing waits, a prompt of any length may: the engine has a limit of its own.
        """
        if self.requests and requests >= self.requests:
            return Refusal.REQUESTS
        if self.tokens and requests and tokens + more > self.tokens:
            return Refusal.TOKENS
        return None


def _number(config: ModelConfig, name: str) -> int:
    text = config.parameter(name)
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise ConfigError(f"parameter '{name}' must be a number, or 0 for no limit, got '{text}'")
    return int(text)
