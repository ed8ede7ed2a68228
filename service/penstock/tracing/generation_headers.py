"""Headers and trailing metadata that tell of one generation: its times and its tokens."""

from __future__ import annotations

from penstock.core.timeline import Timeline

_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"

_FACTS = {
    "x-queue-time": "penstock.llm.queue_time_ms",
    "x-time-to-first-token": "penstock.llm.time_to_first_token_ms",
    "x-time-per-token": "penstock.llm.time_per_output_token_ms",
    "x-total-time": "penstock.llm.total_time_ms",
    "x-prompt-tokens": "gen_ai.usage.input_tokens",
    "x-cached-tokens": "gen_ai.usage.cache_read.input_tokens",
    "x-generated-tokens": _OUTPUT_TOKENS,
    "x-wasted-tokens": "penstock.llm.wasted_tokens",
}
"""The fact that each header has, of those that an engine notes. Times are in milliseconds."""


def generation_headers(root: Timeline) -> list[tuple[str, str]]:
    """Names and values of what the engine has told of a request's generation.

    Empty where no language model has answered, and where several have: their numbers are not added
    up, and the explanation has those of each.
    """
    told = [one.facts for one in root.trace.timelines if _OUTPUT_TOKENS in one.facts]
    if len(told) != 1:
        return []
    facts = told[0]
    return [(header, _written(facts[fact])) for header, fact in _FACTS.items() if fact in facts]


def _written(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
