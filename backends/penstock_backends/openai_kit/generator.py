"""`Generator`: what the application needs of a language model, whichever engine runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from penstock.backend import InferenceRequest, ReportUsage, ResponseStream


class TokenProbability(NamedTuple):
    """The log probability of one token, with its text."""

    text: str
    logprob: float


Position = Sequence[TokenProbability]
"""The candidate tokens at one position: the chosen one first."""


class Piece(NamedTuple):
    """New text of one of the `n` answers; `finish_reason` is `None` while it goes on."""

    answer: int
    text: str = ""
    tokens: int = 0
    token_ids: Sequence[int] = ()
    logprobs: Sequence[Position] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class Step(NamedTuple):
    """Pieces that arrive together, and the prompt's tokens that came from a cache.

    `prompt_tokens` are those of the prompt, where nobody has known them before.
    """

    pieces: Sequence[Piece]
    cached_tokens: int = 0
    prompt_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Properties of a language model that do not change while it is loaded.

    One that `takes_text` takes its prompt as text and gives text, and nothing else is known of it:
    its context is as many characters as it is given at most.
    """

    name: str
    context_length: int
    """Tokens of prompt and answer together."""
    vocabulary: int
    """How many tokens there are; 0 where nobody knows them, so that none are counted."""
    longest_token: int
    """Characters of the longest token's text."""
    chat_template: str | None = None
    special_tokens: Mapping[str, str] | None = None
    """`bos_token`, `eos_token` and others, for the template."""
    takes_text: bool = False


@dataclass(frozen=True, slots=True)
class Generation:
    """One prompt with its sampling parameters, in vLLM's names.

    `text` is the prompt of a model that takes text, and `prompt` its tokens, as far as they are
    `counted`. `whole` asks for one step with everything at the end. `request_id` is the client's.
    `origin` is the request that the server has admitted, where there is one; its tokens are
    reported by `report_usage`, where that is set. `infer` gives the model a request with tensors.
    """

    prompt: Sequence[int]
    parameters: Mapping[str, Any]
    text: str = ""
    counted: bool = True
    whole: bool = False
    token_ids: bool = False
    request_id: str = ""
    origin: InferenceRequest | None = None
    report_usage: ReportUsage | None = None
    infer: Callable[[InferenceRequest], ResponseStream] | None = None


class Steps(Protocol):
    """The steps of a prompt that was submitted. Raises `InferenceError` where it fails."""

    def __aiter__(self) -> Steps:
        """The steps themselves."""

    async def __anext__(self) -> Step:
        """The next step; raises `StopAsyncIteration` after the last."""

    async def aclose(self) -> None:
        """Cancel what still runs."""


class Generator(Protocol):
    """A language model that is loaded."""

    @property
    def facts(self) -> ModelFacts:
        """Its unchanging properties."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The tokens of a text."""

    async def encode_prompt(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The tokens of a prompt, which may be long."""

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of tokens."""

    def token_text(self, token: int) -> str:
        """A token as it stands in the vocabulary."""

    def generate(self, generation: Generation) -> Steps:
        """Submit a prompt; raises `InferenceError` at once if it is refused."""
