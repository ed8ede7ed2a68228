"""Suggestions for mistyped names: the nearest of the known ones, by edit similarity."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest_name(name: str, known: Iterable[str], similarity: float = 0.7) -> str:
    """The nearest of the `known` names; empty if none is similar (0.0 to 1.0) enough."""
    plain = name.lower().replace("_", "-")
    names = {each.lower().replace("_", "-"): each for each in known}
    nearest = get_close_matches(plain, names, 1, similarity)
    return names[nearest[0]] if nearest else ""


def suggestion(name: str, known: Iterable[str], similarity: float = 0.7, prefix: str = "") -> str:
    """The end of an error that suggests the nearest name behind `prefix`; empty if none is near."""
    nearest = nearest_name(name, known, similarity)
    return f"; did you mean '{prefix}{nearest}'?" if nearest else ""
