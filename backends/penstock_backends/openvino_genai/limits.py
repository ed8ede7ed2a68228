"""What fits: the engine itself would take a request that is too long and go wrong later."""

from __future__ import annotations

from penstock.core.errors import InvalidRequestError
from penstock_backends.openvino_genai.settings import BLOCK_TOKENS, EngineSettings


def check_prompt_size(characters: int, longest_token: int, settings: EngineSettings) -> None:
    """Refuse a prompt that cannot fit however it is cut into tokens, before cutting it."""
    if characters > settings.max_model_len * longest_token:
        raise InvalidRequestError(
            f"the prompt has {characters} characters, more than the model's context length "
            f"of {settings.max_model_len} tokens can hold"
        )


def check_lengths(prompt: int, max_tokens: int, settings: EngineSettings) -> None:
    """Refuse a request whose tokens exceed the context or the whole KV cache."""
    limit = settings.max_model_len
    if not prompt:
        raise InvalidRequestError("the prompt is empty: input 'text_input' must hold some text")
    if prompt >= limit:
        raise InvalidRequestError(
            f"the prompt has {prompt} tokens, but the model's context length is {limit} tokens, "
            "and at least one must be left to generate"
        )
    if prompt + max_tokens > limit:
        raise InvalidRequestError(
            f"the prompt has {prompt} tokens and 'max_tokens' asks for {max_tokens} more, but the "
            f"model's context length is {limit} tokens: 'max_tokens' can be at most "
            f"{limit - prompt} here"
        )
    blocks = -(-(prompt + max_tokens) // BLOCK_TOKENS)
    if blocks > settings.num_kv_blocks:
        raise InvalidRequestError(
            f"the prompt's {prompt} tokens and 'max_tokens' of {max_tokens} need {blocks} blocks "
            f"of KV cache, but the engine has {settings.num_kv_blocks}"
        )
