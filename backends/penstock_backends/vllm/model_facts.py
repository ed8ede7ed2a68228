"""`ModelFacts`: what a loaded model and its engine can take, read once from vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Limits of a model: token ids are below `vocabulary`, prompts not longer than the context.

    `by_priority`: whether the scheduler looks at priorities. `modalities` are the media that the
    model takes, and how many of each in a prompt, `None` for any number.
    """

    vocabulary: int = 1 << 31
    context_length: int = 1 << 31
    by_priority: bool = False
    modalities: Mapping[str, int | None] = field(default_factory=dict)


def read_facts(llm: Any) -> ModelFacts:
    """The facts of a started `AsyncLLM`."""
    config = llm.vllm_config
    model = config.model_config
    return ModelFacts(
        vocabulary=model.get_vocab_size(),
        context_length=model.max_model_len,
        by_priority=config.scheduler_config.policy == "priority",
        modalities=_modalities(llm),
    )


def _modalities(llm: Any) -> Mapping[str, int | None]:
    if not llm.vllm_config.model_config.supports_multimodal_inputs:
        return {}
    return dict(llm.renderer.get_mm_processor().info.allowed_mm_limits)
