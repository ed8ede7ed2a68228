"""Numbers of examples for properties that do not take the profile's."""

from __future__ import annotations

from hypothesis import settings


def examples(number: int) -> int:
    """The examples of a property: `number`, or those of the profile `quick` if that has fewer."""
    if settings.get_current_profile_name() != "quick":
        return number
    return min(number, settings.get_profile("quick").max_examples)
