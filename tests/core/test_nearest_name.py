"""The known name that a mistyped one is nearest to."""

from __future__ import annotations

import pytest

from penstock.core.nearest_name import nearest_name

NAMES = ("model-repository", "model-control-mode", "http-port", "grpc-port")


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("model-repositry", "model-repository"),
        ("model_repository", "model-repository"),
        ("HTTP-PORT", "http-port"),
        ("no-such-option", ""),
        ("", ""),
    ],
)
def test_only_similar_names_are_found(given: str, nearest: str) -> None:
    assert nearest_name(given, NAMES) == nearest
