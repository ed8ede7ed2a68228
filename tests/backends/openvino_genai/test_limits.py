"""Requests that cannot fit are refused with the number that would."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import InvalidRequestError
from penstock_backends.openvino_genai.limits import check_lengths, check_prompt_size
from penstock_backends.openvino_genai.settings import EngineSettings

SETTINGS = EngineSettings(Path(), Path(), max_model_len=512, num_kv_blocks=8)


@pytest.mark.parametrize(("prompt", "max_tokens"), [(1, 255), (255, 1), (128, 128)])
def test_what_fits_passes(prompt: int, max_tokens: int) -> None:
    check_lengths(prompt, max_tokens, SETTINGS)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="the prompt is empty"):
        check_lengths(0, 16, SETTINGS)


def test_a_prompt_must_leave_room_for_a_token() -> None:
    with pytest.raises(InvalidRequestError, match=r"has 512 tokens, but .* length is 512 tokens"):
        check_lengths(512, 1, SETTINGS)


def test_the_refusal_says_how_much_is_left() -> None:
    with pytest.raises(InvalidRequestError, match="'max_tokens' can be at most 412 here"):
        check_lengths(100, 413, SETTINGS)


def test_a_request_larger_than_the_cache_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"need 9 blocks .* but the engine has 8"):
        check_lengths(100, 157, SETTINGS)


def test_a_prompt_that_no_tokens_can_hold_is_refused_before_it_is_cut() -> None:
    check_prompt_size(5120, 10, SETTINGS)
    with pytest.raises(InvalidRequestError, match=r"has 5121 characters"):
        check_prompt_size(5121, 10, SETTINGS)
