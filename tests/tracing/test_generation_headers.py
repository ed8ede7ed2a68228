"""What headers tell of a generation."""

from __future__ import annotations

from penstock.core.timeline import Fact, Timeline, Trace
from penstock.tracing.generation_headers import generation_headers


def _asked(*each: dict[str, Fact]) -> Timeline:
    """The timeline of a client's request, for which these were made to models."""
    root = Trace(1).root
    for facts in each:
        root.nest("m", "1", "", 1).facts |= facts
    return root


def test_a_cancelled_generation_tells_what_it_has_and_what_was_wasted() -> None:
    facts: dict[str, Fact] = {
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 5,
        "penstock.llm.total_time_ms": 12.34567,
        "penstock.llm.wasted_tokens": 2,
    }
    assert generation_headers(_asked({}, facts)) == [
        ("x-total-time", "12.346"),
        ("x-prompt-tokens", "7"),
        ("x-generated-tokens", "5"),
        ("x-wasted-tokens", "2"),
    ]


def test_other_models_and_encoders_have_none() -> None:
    assert generation_headers(_asked({}, {"gen_ai.usage.input_tokens": 7})) == []


def test_the_numbers_of_several_generations_are_not_mixed() -> None:
    one: dict[str, Fact] = {"gen_ai.usage.output_tokens": 5}
    assert generation_headers(_asked(one, one)) == []
