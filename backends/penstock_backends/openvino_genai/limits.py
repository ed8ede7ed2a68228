"""Length limits of requests; the engine does not check them and fails later."""

from __future__ import annotations

from penstock.backend import InvalidRequestError
from penstock_backends.language_model import check_length
from penstock_backends.openvino_genai.settings import BLOCK_TOKENS, EngineSettings


def check_prompt_size(characters: int, longest_token: int, settings: EngineSettings) -> None:
    """Reject, before tokenizing, a prompt that cannot fit however it is tokenized."""
    if characters > settings.max_model_len * longest_token:
        raise InvalidRequestError(
            f"the prompt has {characters} characters, more than the model's context length "
            f"of {settings.max_model_len} tokens can hold"
        )


def fitting_length(prompt: int, max_tokens: int, settings: EngineSettings) -> int:
    """The largest number of tokens to generate: `max_tokens`, or the rest of the context.

    Generation ends at the end of the context, as with vLLM, so clients can switch engines. Raises
    `InvalidRequestError` if there is no room for a token, if the KV cache is too small, or if the
    whole context is.
    """
    limit = settings.max_model_len
    check_length(max_tokens, limit)
    if not prompt:
        raise InvalidRequestError("the prompt is empty: input 'text_input' must hold some text")
    if prompt >= limit:
        raise InvalidRequestError(
            f"the prompt has {prompt} tokens, but the model's context length is {limit} tokens, "
            "and at least one must be left to generate"
        )
    fitting = min(max_tokens, limit - prompt)
    blocks = -(-(prompt + fitting) // BLOCK_TOKENS)
    if blocks > settings.num_kv_blocks:
        raise InvalidRequestError(
            f"the prompt's {prompt} tokens and 'max_tokens' of {fitting} need {blocks} blocks "
            f"of KV cache, but the engine has {settings.num_kv_blocks}"
        )
    return fitting
