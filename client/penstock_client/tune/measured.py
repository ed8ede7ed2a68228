"""Results of a search: each variant at its best load, and the one to take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_client.perf.gate import Limit
from penstock_client.tune.choice import (
    FAILED,
    MODELS,
    Aims,
    Figures,
    Standing,
    best,
    broken,
    front,
    standing,
)
from penstock_client.tune.search import is_better
from penstock_client.tune.space import Changes, label


@dataclass(frozen=True, slots=True)
class Measured:
    """A variant with the figures of its loads; `failure` says why there are none, or no more."""

    changes: Changes
    settings: Mapping[str, Any]
    points: tuple[Figures, ...]
    failure: str = ""

    def best(self, aims: Aims) -> Figures | None:
        """The figures of its best load."""
        number = best(self.points, aims)
        return None if number is None else self.points[number]

    def standing(self, aims: Aims) -> Standing:
        """Its standing; one that failed under some load cannot be chosen."""
        figures = self.best(aims)
        return FAILED if self.failure or figures is None else standing(figures, aims)

    def line(self, number: int, aims: Aims) -> Iterator[str]:
        """One line about it."""
        figures = self.best(aims)
        title = f"[{number}] {label(self.changes)}"
        if self.failure:
            yield f"{title}: failed: {self.failure}"
        elif figures is None:
            yield f"{title}: nothing was measured"
        else:
            yield f"{title}: {', '.join(headline(figures, aims))}"


def headline(figures: Figures, aims: Aims) -> Iterator[str]:
    """The figures of one load in a few words, with the limits that it breaks."""
    yield f"{figures['inferences_per_second']:.1f} inferences/s at {figures['load']['label']}"
    if figures["latency_ms"]:
        yield f"p99 {figures['latency_ms']['p99']:.3g} ms"
    if figures.get("memory_bytes"):
        yield f"{mebibytes(figures['memory_bytes']):.0f} MiB"
    yield from (f"{text.upper()}" for text in broken(figures, aims.limits))


def by_model(figures: Figures) -> list[Figures]:
    """The figures of each model where there were several at a time, else those that are given."""
    return [
        {**own, "load": {**own["load"], "label": f"{name}: {own['load']['label']}"}}
        for name, own in figures.get(MODELS, {}).items()
    ] or [figures]


def mebibytes(size: float) -> float:
    """Bytes as MiB."""
    return size / (1 << 20)


@dataclass(frozen=True, slots=True)
class Row:
    """A variant at its best load."""

    variant: Measured
    figures: Figures
    standing: Standing


class Ranking:
    """The variants of a search, the best first; `is_refuted` if a check spoke against that one."""

    def __init__(
        self, variants: Sequence[Measured], aims: Aims, *, is_refuted: bool = False
    ) -> None:
        self.aims = aims
        self._is_refuted = is_refuted
        self.variants = list(variants)
        rows = [
            Row(each, figures, each.standing(aims))
            for each in variants
            if (figures := each.best(aims)) is not None
        ]
        self.rows = sorted(rows, key=lambda row: row.standing, reverse=True)
        self.original = next((row for row in rows if not row.variant.changes), None)

    @property
    def failed(self) -> list[Measured]:
        """The variants that could not be measured, or not to their end."""
        return [each for each in self.variants if each.failure]

    @property
    def winner(self) -> Row | None:
        """The best variant that keeps all limits; the original where none is clearly better."""
        top = self.rows[0] if self.rows and self.rows[0].standing.kept else None
        if top is None or self.original is None:
            return top
        is_gain = is_better(top.standing, self.original.standing) and not self._is_refuted
        return top if is_gain or not self.original.standing.kept else self.original

    @property
    def closest(self) -> Row | None:
        """The variant that breaks the limits by least, where none keeps them."""
        first = self.rows[0] if self.rows else None
        return first if first is not None and first.standing.rank == 1 else None

    @property
    def limits(self) -> Sequence[Limit]:
        """The limits that had to be kept."""
        return self.aims.limits

    def front(self) -> list[tuple[Measured, Figures]]:
        """The loads of all variants that no other beats in throughput and p99 latency."""
        points = [
            (variant, figures)
            for variant in self.variants
            for figures in variant.points
            if figures["latency_ms"] and not figures["failed"]
        ]
        places = [(f["inferences_per_second"], f["latency_ms"]["p99"]) for _, f in points]
        return [points[number] for number in front(places)]

    def gains(self) -> Iterator[tuple[str, float, float]]:
        """Objectives with their values in the original and in the best variant."""
        if self.winner is None or self.original is None:
            return
        for objective in self.aims.objectives:
            before = objective.value(self.original.figures)
            after = objective.value(self.winner.figures)
            if before is not None and after is not None:
                yield objective.name, before, after
