"""Searches: which variant to measure next, from what has been measured, without any other state.

A search that was stopped goes on by being asked again with the measurements that were kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Protocol

from penstock_client.tune.choice import Standing
from penstock_client.tune.space import Space, Variant

Standings = Mapping[Variant, Standing]
"""What has been measured, in the order in which it was."""

MARGIN = log(1.02)
"""What a step has to gain: 2 %, less is noise."""


class Search(Protocol):
    """A way through a space."""

    def next(self, standings: Standings) -> Variant | None:
        """The variant to measure next; `None` at the end."""


class BruteSearch:
    """Every variant, one after the other."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def next(self, standings: Standings) -> Variant | None:
        """The first variant that was not measured."""
        return next((each for each in self._space if each not in standings), None)


class QuickSearch:
    """A hill climb from the original, one dimension at a time, until no step makes it better."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def next(self, standings: Standings) -> Variant | None:
        """The first step whose standing the climb needs and does not know."""
        at = self._space.start
        if at not in standings:
            return at
        while True:
            begin = at
            for dimension in range(len(self._space.dimensions)):
                at, missing = self._climb(at, dimension, standings)
                if missing is not None:
                    return missing
            if at == begin:
                return None

    def _climb(
        self, at: Variant, dimension: int, standings: Standings
    ) -> tuple[Variant, Variant | None]:
        """The end of steps along one dimension, and the step that has to be measured for more."""
        tried = {at}
        while True:
            steps = [
                self._space.neighbour(at, dimension, value)
                for value in self._space.dimensions[dimension].steps(at[dimension])
            ]
            new = [step for step in steps if step not in tried]
            for step in new:
                if step not in standings:
                    return at, step
                tried.add(step)
                if is_better(standings[step], standings[at]):
                    at = step
                    break
            else:
                return at, None


def is_better(one: Standing, other: Standing) -> bool:
    """Whether one standing is better by more than noise."""
    if one.rank != other.rank:
        return one.rank > other.rank
    return one.value > other.value + (MARGIN if one.kept else 0.0)
