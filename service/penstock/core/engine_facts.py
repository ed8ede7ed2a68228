"""`EngineFacts`: what routers of engines ask about a language model before they send it tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

FACTS: Final = "engine-facts"
"""The server's command for the facts of a model's engine."""

FIRST_TOKEN: Final = "first_token"
"""Structured outputs hold from the first token on."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """A language model as a router of engines sees it; values that JSON has.

    `tokenizer` is a folder, or a file beside which others of the tokenizer may lie; it is on the
    server's machine, and empty where there is none. `chat_template` and `special_tokens`
    (`bos_token`, ...) are those that the server itself would use. `kv_events` are the addresses at
    which the engine publishes what its KV cache has, by the number of the engine (`ZeroMQ`).
    """

    model: str = ""
    tokenizer: str = ""
    generates: bool = True
    context_length: int = 0
    """Tokens of prompt and answer together."""
    vocabulary: int = 0
    model_type: str = ""
    architectures: Sequence[str] = ()
    eos_token_ids: Sequence[int] = ()
    bos_token_id: int = 0
    pad_token_id: int = 0
    sampling_defaults: Mapping[str, float] = field(default_factory=dict)
    """Sampling parameters of a request that sets none, where the model has its own."""
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    max_running: int = 0
    """Requests that the engine runs at once; 0 where nobody knows."""
    block_size: int = 0
    """Tokens of a block of the KV cache; 0 where nobody knows."""
    cache_dtype: str = ""
    dtype: str = ""
    reasoning_parser: str = ""
    constraints_start: str = FIRST_TOKEN
    """Where structured outputs begin to hold: `first_token`, or `after_reasoning`."""
    data_parallel_size: int = 1
    kv_events: Mapping[str, str] = field(default_factory=dict)
