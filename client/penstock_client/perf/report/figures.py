"""Figures of a measurement as reports show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Figures = Mapping[str, Any]

TIMES = {
    "latency_ms": "latency",
    "ttft_ms": "first response",
    "gap_ms": "between responses",
    "per_token_ms": "per token",
    "send_delay_ms": "sent late by",
}
"""Titles of distributions of times, in milliseconds."""


def distributions(figures: Figures) -> list[tuple[str, Figures]]:
    """The distributions that a measurement has, with their titles."""
    return [(title, figures[key]) for key, title in TIMES.items() if figures.get(key)]
