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
    """Properties of a language model that do not change while it is loaded."""

    name: str
    context_length: int
    """Tokens of prompt and answer together; characters of a prompt for a model that takes text."""
    vocabulary: int
    """How many tokens there are; 0 where nobody knows them."""
    longest_token: int
    """Characters of the longest token's text."""
    chat_template: str | None = None
    special_tokens: Mapping[str, str] | None = None
    """`bos_token`, `eos_token` and others, for the template."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: its text, empty for one of token ids whose text nobody needs, and its tokens, none
    where they are not `counted`.
    """

    text: str
    tokens: Sequence[int] = ()
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Generation:
    """One prompt with its sampling parameters, in vLLM's names.

    `whole` asks for one step with everything at the end. `request_id` is the client's.
    `origin` is the request that the server has admitted, where there is one; its tokens are
    reported by `report_usage`, where that is set. `infer` gives the model a request with tensors.
    """

    prompt: Prompt
    parameters: Mapping[str, Any]
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


class Submitted(Steps, Protocol):
    """The steps of a prompt that the model may still refuse."""

    async def begin(self) -> None:
        """Wait until the model has taken the prompt, before a step is read.

        Raises `InferenceError` if it refuses.
        """


class Prompts(Protocol):
    """How a model takes its prompts: in tokens, or as text. All methods raise `ApiError`."""

    @property
    def text_tokenizer(self) -> Any:
        """One of the package `tokenizers`; `None` where nobody counts tokens."""

    @property
    def completion_length(self) -> int | None:
        """Tokens of a completion for which nobody sets a length."""

    @property
    def context_length(self) -> int | None:
        """Tokens of prompt and answer together; `None` where nobody knows."""

    @property
    def limit_text(self) -> str:
        """The bound of a prompt for errors, such as `the 4096 tokens of the model's context`."""

    def check(self, fields: Mapping[str, Any]) -> None:
        """Refuse fields of a request that such a prompt cannot keep."""

    async def of_text(self, text: str, *, special: bool) -> Prompt:
        """The prompt of a text of any length, with the tokenizer's special tokens if `special`."""

    def of_tokens(self, given: list[int], field: str, *, with_text: bool) -> Prompt:
        """The prompt of tokens that came in a field, whose text is made if it is wanted."""

    def answer_length(
        self, fields: Mapping[str, Any], prompt: Prompt, default: int | None, field: str
    ) -> dict[str, int]:
        """The sampling parameter for the most tokens to generate; none leaves it to the model.

        Refused is a prompt, which came in `field`, that is empty or leaves no room.
        """


class Generator(Protocol):
    """A language model that is loaded."""

    @property
    def facts(self) -> ModelFacts:
        """Its unchanging properties."""

    @property
    def prompts(self) -> Prompts:
        """How it takes its prompts."""

    def generate(self, generation: Generation) -> Submitted:
        """Submit a prompt; raises `InferenceError` at once if it is refused."""
