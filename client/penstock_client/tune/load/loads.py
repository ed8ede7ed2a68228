"""The loads that a variant is measured under, and when there have been enough of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_client.perf.load.plan import Point
from penstock_client.tune.choice import Figures

_GAIN = 1.05
_WITHOUT = 2


@dataclass(frozen=True, slots=True)
class Load:
    """One strength of a load, with so many rows in a request."""

    point: Point
    batch: int = 1

    @property
    def label(self) -> str:
        """A few words for tables, and the load's name in the record."""
        rows = f", {self.batch} rows" if self.batch > 1 else ""
        return f"{self.point.label}{rows}"


@dataclass(frozen=True, slots=True)
class Loads:
    """The loads of each variant, in this order; a sweep ends where more load brings no more."""

    all: tuple[Load, ...]
    sweep: bool = False

    def next(self, measured: Mapping[str, Figures]) -> Load | None:
        """The load to measure next, `None` if there have been enough; `measured` is by label."""
        if self.sweep and _is_saturated(list(measured.values())):
            return None
        return next((each for each in self.all if each.label not in measured), None)


def _is_saturated(points: Sequence[Figures]) -> bool:
    """Whether the last loads brought no more requests a second than those before."""
    rates: list[Any] = [each["throughput"] for each in points]
    before, last = rates[:-_WITHOUT], rates[-_WITHOUT:]
    return bool(before) and max(last) < _GAIN * max(before)
