"""`ModelFacts`: what a loaded model and its engine can take, read once from vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.backend import InvalidRequestError
from penstock_backends.vllm.internals import Inside, media_limits
from penstock_backends.vllm.reasoning import parser_class

_MODALITIES: Final = ("image", "audio", "video")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Limits of a model: token ids are below `vocabulary`, prompts not longer than the context.

    `by_priority`: whether the scheduler looks at priorities. `modalities` are the media that the
    model takes, and how many of each in a prompt, `None` for any number. `reasoning_parser` is the
    class of vLLM's that `model.json` names. `by_xgrammar`: whether xgrammar keeps to JSON schemas,
    `compact_json` whether without white space.
    """

    vocabulary: int = 1 << 31
    context_length: int = 1 << 31
    by_priority: bool = False
    modalities: Mapping[str, int | None] = field(default_factory=dict)
    reasoning_parser: Any = None
    by_xgrammar: bool = False
    compact_json: bool = False

    def parsers(self, count: int, tokenizer: Any) -> list[Any]:
        """A reasoning parser for each candidate; raises `InvalidRequestError` without one."""
        if self.reasoning_parser is None:
            raise InvalidRequestError(
                "input 'return_reasoning_text' needs a 'reasoning_parser' in the model's model.json"
            )
        try:
            return [self.reasoning_parser(tokenizer) for _ in range(count)]
        except Exception as error:  # such as a tokenizer without the tokens that it looks for
            raise InvalidRequestError(
                f"the model's reasoning parser does not go with its tokenizer: {error}"
            ) from error


def read_facts(llm: Any, inside: Inside) -> ModelFacts:
    """The facts of a started `AsyncLLM`."""
    config = llm.vllm_config
    model, structured = config.model_config, config.structured_outputs_config
    return ModelFacts(
        vocabulary=model.get_vocab_size(),
        context_length=model.max_model_len,
        by_priority=config.scheduler_config.policy == "priority",
        modalities=_modalities(llm, inside),
        reasoning_parser=parser_class(structured.reasoning_parser),
        by_xgrammar=structured.backend in ("auto", "xgrammar") and inside.has("schemas"),
        compact_json=structured.disable_any_whitespace,
    )


def _modalities(llm: Any, inside: Inside) -> Mapping[str, int | None]:
    if not llm.vllm_config.model_config.supports_multimodal_inputs:
        return {}
    return media_limits(llm) if inside.has("media") else dict.fromkeys(_MODALITIES)
