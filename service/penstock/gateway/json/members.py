"""The members of decoded objects, as often as they are in the text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class RepeatedMembers(dict[str, Any]):
    """The members of an object that names some of them again: the first of equal names counts."""

    def __init__(self, members: Mapping[str, Any], names: Sequence[str]) -> None:
        super().__init__(members)
        self.names = names
        """The names of all members, those that come again included."""


def names_of(members: Mapping[str, Any]) -> Iterable[str]:
    """The names of an object's members, as often as they are in the text."""
    return members.names if isinstance(members, RepeatedMembers) else members
