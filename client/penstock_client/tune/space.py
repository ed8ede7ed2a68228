"""The search space: dimensions with values, and variants, which are points in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

Variant = tuple[int, ...]
"""For each dimension the number of its value, `UNCHANGED` where the model's own is none of them."""

UNCHANGED = -1

Changes = Mapping[str, Any]
"""What a variant changes: values by the names of dimensions; empty for the original."""


@dataclass(frozen=True, slots=True, eq=False)
class Dimension:
    """One setting and its values in order; `original` is the value that the model has."""

    name: str
    values: tuple[Any, ...]
    original: Any = None

    @property
    def start(self) -> int:
        """The number of the original value, or `UNCHANGED`."""
        places = (number for number, value in enumerate(self.values) if value == self.original)
        return next(places, UNCHANGED)

    def steps(self, at: int) -> Iterator[int]:
        """The neighbours of a value: the next larger one first."""
        if at == UNCHANGED:
            yield from self._around()
            return
        if at + 1 < len(self.values):
            yield at + 1
        if at > 0:
            yield at - 1

    def _around(self) -> Iterator[int]:
        """The values next to an original that is none of them; the first if they have no order."""
        try:
            larger = [n for n, value in enumerate(self.values) if value > self.original]
        except TypeError:
            yield 0
            return
        first = larger[0] if larger else len(self.values)
        yield from (number for number in (first, first - 1) if 0 <= number < len(self.values))

    def value(self, at: int) -> Any:
        """The value of this number."""
        return self.original if at == UNCHANGED else self.values[at]


class Space:
    """All variants of a model."""

    def __init__(self, dimensions: Sequence[Dimension]) -> None:
        self.dimensions = tuple(dimensions)

    @property
    def start(self) -> Variant:
        """The model as it is."""
        return tuple(dimension.start for dimension in self.dimensions)

    @property
    def size(self) -> int:
        """The number of variants, the original among them."""
        values = prod(len(dimension.values) for dimension in self.dimensions)
        return values + (UNCHANGED in self.start)

    def __iter__(self) -> Iterator[Variant]:
        """Every variant, the original first."""
        yield self.start
        for variant in product(*(range(len(each.values)) for each in self.dimensions)):
            if variant != self.start:
                yield variant

    def neighbour(self, variant: Variant, dimension: int, at: int) -> Variant:
        """The variant with another value of one dimension."""
        return (*variant[:dimension], at, *variant[dimension + 1 :])

    def settings(self, variant: Variant) -> dict[str, Any]:
        """All values of a variant, those that it does not change too."""
        pairs = zip(self.dimensions, variant, strict=True)
        return {dimension.name: dimension.value(at) for dimension, at in pairs}

    def changes(self, variant: Variant) -> dict[str, Any]:
        """The changed values of a variant, by the names of dimensions."""
        originals = {each.name: each.original for each in self.dimensions}
        found = self.settings(variant)
        return {name: value for name, value in found.items() if value != originals[name]}


def key(changes: Changes) -> str:
    """Text that is equal for equal changes."""
    return json.dumps(changes, sort_keys=True)


def label(values: Changes) -> str:
    """Values in a few words for people."""
    return ", ".join(f"{name} {shown(value)}" for name, value in values.items()) or "original"


def shown(value: Any) -> str:
    """A value as it stands in tables."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "unset"
    return value if isinstance(value, str) else json.dumps(value)
