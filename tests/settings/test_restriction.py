"""Secrets of restrictions are compared whole, in a time that does not tell where they differ."""

from __future__ import annotations

import hmac

import pytest

from penstock.settings import Feature, Restriction

SECRET = Restriction(frozenset({Feature.HEALTH}), "key", "gehëim")


@pytest.mark.parametrize(
    ("value", "admitted"),
    [("gehëim", True), ("geheim", False), ("", False), (None, False), ("gehëim ", False)],
)
def test_only_the_whole_secret_is_admitted(value: str | None, admitted: bool) -> None:
    assert SECRET.admits(value) is admitted


def test_any_text_can_be_compared() -> None:
    """Arguments that are no UTF-8 become surrogates."""
    assert Restriction(frozenset(), "key", "\udcff").admits("\udcff")


def test_the_comparison_takes_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the library, which looks at every byte."""
    monkeypatch.setattr(hmac, "compare_digest", lambda *pair: pair == (b"x", "gehëim".encode()))
    assert SECRET.admits("x")
