"""Long lists: what is done with millions of elements is done in parts, between which others run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.gateway.json.members import RepeatedMembers
from penstock.gateway.json.thread import give_turn

_PART = 1 << 16
"""Elements that are converted or freed at a time."""

_FEW = 1 << 8
"""Elements in a list that may be freed with the one that holds it."""

_LISTS = 1 << 10
"""Lists of so few that are freed at a time."""


def slices(values: list[Any]) -> Iterator[list[Any]]:
    """A list in slices, each converted by one call in a millisecond or two."""
    if len(values) <= _PART:
        yield values
        return
    for at in range(0, len(values), _PART):
        give_turn()
        yield values[at : at + _PART]


def discard(value: Any) -> None:
    """Empty a list or object, and those in it: freeing millions of values at once holds the GIL."""
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            while value:
                todo.append(value.popitem()[1])
        elif type(value) is list:
            while value:
                todo += _free_some(value)


_CONTAINERS = frozenset({list, dict, RepeatedMembers})


def _free_some(values: list[Any]) -> list[Any]:
    """Remove the last elements of a list; those that are not to be freed with it are returned."""
    last = values[-_PART:]
    del values[-_PART:]
    give_turn()
    if _CONTAINERS.isdisjoint(map(type, last)):
        return []
    kept = [one for one in last if not _is_freed_at_once(one)]
    while last:
        del last[-_LISTS:]
        give_turn()
    return kept


def _is_freed_at_once(value: Any) -> bool:
    if type(value) is not list:
        return not isinstance(value, dict)
    return len(value) <= _FEW and _CONTAINERS.isdisjoint(map(type, value))


def empty(values: list[Any]) -> None:
    """Remove the elements of a list, which are freed elsewhere."""
    while values:
        del values[-_PART:]
        give_turn()
