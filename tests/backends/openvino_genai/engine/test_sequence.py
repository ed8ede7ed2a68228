"""Stop conditions of a sequence."""

from __future__ import annotations

from typing import Any

import pytest

from backends.openvino_genai.scripted import sequences
from penstock_backends.openvino_genai.pipeline import StepOutput


def run(outputs: list[StepOutput], **given: Any) -> tuple[str, int, str | None]:
    (sequence,) = sequences(max_tokens=99, **given)
    for output in outputs:
        sequence.accept(output)
    candidate = sequence.candidate
    return "".join(candidate.text), candidate.tokens, candidate.finish_reason


def counting(*tokens: int, end: str | None = None) -> list[StepOutput]:
    outputs = [StepOutput([token]) for token in tokens]
    return [*outputs[:-1], StepOutput([tokens[-1]], finish_reason=end)]


def test_the_limit_ends_a_text_behind_its_last_token() -> None:
    assert run(counting(1, 2, 3, end="length")) == ("1 2 3 ", 3, "length")


def test_the_token_that_stops_counts_but_is_not_shown() -> None:
    assert run(counting(1, 2, end="stop")) == ("1 ", 2, "stop")


def test_the_token_that_stops_can_be_shown() -> None:
    ended = run(counting(1, 2, end="stop"), include_stop_str_in_output=True)
    assert ended == ("1 2 ", 2, "stop")


def test_a_stop_string_ends_the_text_before_it() -> None:
    assert run(counting(1, 2, 3), stop=["2 3"]) == ("1 ", 3, "stop")


def test_a_stop_string_can_be_shown() -> None:
    ended = run(counting(1, 2, 3), stop="2", include_stop_str_in_output=True)
    assert ended[0] == "1 2"


def test_tokens_behind_a_stop_string_do_not_count() -> None:
    assert run([StepOutput([1, 2, 3, 4])], stop="2") == ("1 ", 2, "stop")


def test_a_partial_stop_string_is_output_at_the_end() -> None:
    assert run(counting(1, 2, end="length"), stop="2 3") == ("1 2 ", 2, "length")


def test_a_stop_string_does_not_count_before_the_minimum() -> None:
    assert run(counting(1, 2, 1, 2), stop="2", min_tokens=3) == ("1 2 1 ", 4, "stop")


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 40])
def test_a_whole_text_is_that_of_a_stream(tokens: int) -> None:
    """Its tokens are decoded some at a time, and the rest at the end."""
    outputs = counting(*range(tokens), end="length")
    assert run(outputs, stream=False) == run(outputs, stream=True)


def test_a_whole_text_ends_before_a_token_that_stops() -> None:
    assert run(counting(1, 2, end="stop"), stream=False) == ("1 ", 2, "stop")


def test_a_stop_string_ends_a_whole_text_when_it_comes() -> None:
    assert run(counting(1, 2, 3), stream=False, stop=["2 3"]) == ("1 ", 3, "stop")
