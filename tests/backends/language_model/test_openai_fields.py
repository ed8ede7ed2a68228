"""Fields of OpenAI's API that ask an engine for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_backends.language_model import asks_for_nothing


@pytest.mark.parametrize(
    ("name", "value", "nothing"),
    [
        ("store", False, True),
        ("store", True, False),
        ("service_tier", "auto", True),
        ("service_tier", "flex", False),
        ("modalities", ["text"], True),
        ("modalities", ["text", "audio"], False),
        ("metadata", {"a": "b"}, True),
        ("prompt_cache_key", "k", True),
        ("temprature", None, True),
        ("temprature", 1, False),
    ],
)
def test_a_field_asks_for_nothing_by_its_value(name: str, value: Any, nothing: bool) -> None:
    assert asks_for_nothing(name, value) == nothing
