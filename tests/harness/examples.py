"""How many examples a property has where it says so itself."""

from __future__ import annotations

from hypothesis import settings


def examples(number: int) -> int:
    """So many, but no more than the profile `quick` allows where that is chosen."""
    if settings.get_current_profile_name() != "quick":
        return number
    return min(number, settings.get_profile("quick").max_examples)
