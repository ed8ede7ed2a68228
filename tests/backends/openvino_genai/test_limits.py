"""Requests that are too long are rejected, with the limit in the error."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import InvalidRequestError
from penstock_backends.openvino_genai.limits import check_prompt_size, fitting_length
from penstock_backends.openvino_genai.settings import EngineSettings

SETTINGS = EngineSettings(Path(), Path(), max_model_len=512, num_kv_blocks=8)


@pytest.mark.parametrize(("prompt", "max_tokens"), [(1, 255), (255, 1), (128, 128)])
def test_a_length_that_fits_passes(prompt: int, max_tokens: int) -> None:
    assert fitting_length(prompt, max_tokens, SETTINGS) == max_tokens


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="the prompt is empty"):
        fitting_length(0, 16, SETTINGS)


def test_a_prompt_must_leave_room_for_a_token() -> None:
    with pytest.raises(InvalidRequestError, match=r"has 512 tokens, but .* length is 512 tokens"):
        fitting_length(512, 1, SETTINGS)


def test_generation_ends_with_the_context() -> None:
    roomy = EngineSettings(Path(), Path(), max_model_len=512, num_kv_blocks=16)
    assert fitting_length(100, 413, roomy) == 412


def test_more_tokens_than_the_whole_context_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"'max_tokens' must be at most 512, .* not 513"):
        fitting_length(1, 513, SETTINGS)


def test_a_request_larger_than_the_cache_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"need 9 blocks .* but the engine has 8"):
        fitting_length(100, 157, SETTINGS)


def test_a_prompt_that_no_tokens_can_hold_is_refused_before_it_is_cut() -> None:
    check_prompt_size(5120, 10, SETTINGS)
    with pytest.raises(InvalidRequestError, match=r"has 5121 characters"):
        check_prompt_size(5121, 10, SETTINGS)
