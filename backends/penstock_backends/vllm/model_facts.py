"""`ModelFacts`: what a loaded model and its engine can take, read once from vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Limits of a model: token ids are below `vocabulary`, prompts not longer than the context.

    `by_priority`: whether the scheduler looks at priorities.
    """

    vocabulary: int = 1 << 31
    context_length: int = 1 << 31
    by_priority: bool = False


def read_facts(llm: Any) -> ModelFacts:
    """The facts of a started `AsyncLLM`."""
    config = llm.vllm_config
    model = config.model_config
    return ModelFacts(
        vocabulary=model.get_vocab_size(),
        context_length=model.max_model_len,
        by_priority=config.scheduler_config.policy == "priority",
    )
