"""Prompts as vLLM takes them, from text or token ids."""

from __future__ import annotations

from typing import Any

from penstock.backend import Array, InvalidRequestError
from penstock_backends.language_model import GenerationRequest, checked_ids
from penstock_backends.vllm.model_facts import ModelFacts


def prompt_of(generation: GenerationRequest, facts: ModelFacts) -> dict[str, Any]:
    """The prompt of a request; raises `InvalidRequestError`."""
    if generation.input_ids is not None:
        return ids_prompt(generation.input_ids, facts)
    return text_prompt(generation.prompt)


def text_prompt(text: str) -> dict[str, Any]:
    """A prompt of text; raises `InvalidRequestError` if there is none."""
    if not text:
        raise InvalidRequestError("the prompt is empty: input 'text_input' must hold some text")
    return {"prompt": text}


def ids_prompt(ids: Array, facts: ModelFacts) -> dict[str, Any]:
    """A prompt of token ids; raises `InvalidRequestError` for those that the model lacks."""
    return {"prompt_token_ids": checked_ids(ids, facts.vocabulary, facts.context_length)}
