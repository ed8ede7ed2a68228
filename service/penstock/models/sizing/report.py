"""`Report`: a plan as text and as JSON, held against what there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.models.sizing.cards import Card
from penstock.models.sizing.estimate import ModelEstimate, ModelFacts, Parts, Place
from penstock.models.sizing.plan import (
    LARGE,
    LARGE_CARD,
    Change,
    Plan,
    fewest,
    fitting_cards,
    suggestions,
)
from penstock.models.sizing.sizes import shown_size

_MOST_CHANGES = 6


def escaped(line: str) -> str:
    """A line in which names from files do nothing to a terminal: control characters escaped."""
    if line.isprintable():
        return line
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in line
    )


@dataclass(frozen=True, slots=True)
class Report:
    """A plan with what it is held against: cards of a kind, bytes of the host, or nothing."""

    facts: Sequence[ModelFacts]
    plan: Plan
    problems: Mapping[str, str]
    card: Card | None
    limit: int

    @classmethod
    def of(
        cls,
        facts: Sequence[ModelFacts],
        problems: Mapping[str, str],
        card: Card | None,
        number: int,
        memory: int,
    ) -> Report:
        place = Place() if card is None else Place(tuple(range(number)), card.usable)
        return cls(
            facts, Plan.of(facts, place), problems, card, memory if card is None else card.usable
        )

    @property
    def fits(self) -> bool:
        """Whether it fits what there is; also where nothing was named."""
        if self.card is not None:
            return self.plan.fits(self.card)
        return not self.limit or not (self.plan.excess(self.limit) or self.plan.elsewhere())

    def as_json(self) -> dict[str, Any]:
        """All of it, sizes in bytes."""
        plan = self.plan
        return {
            "models": [_model_json(model) for model in plan.models],
            "server": {device: _parts_json(parts) for device, parts in plan.server.items()},
            "devices": {
                device: {"needed": plan.needed(device), "planned": plan.planned(device)}
                for device in plan.devices
            },
            "limit": self.limit or None,
            "fits": self.fits,
            "cards": {card.key: number for card, number in fitting_cards(self.facts)},
            "changes": [] if self.fits else self._changes_json(),
            "problems": dict(self.problems),
        }

    def as_text(self) -> str:
        """All of it for people."""
        lines = [*_table(self.plan), "", *self._sums(), *self._verdict(), *self._cards()]
        notes = [
            f"note: '{model.facts.name}': {note}"
            for model in self.plan.models
            for note in model.notes
        ]
        failed = [f"cannot be read: '{name}': {text}" for name, text in self.problems.items()]
        return "\n".join(map(escaped, [*lines, *notes, *failed]))

    def _sums(self) -> Iterator[str]:
        for device in self.plan.devices:
            planned = self.plan.planned(device)
            if not planned:
                continue
            needed = self.plan.needed(device)
            how = f"{shown_size(needed)} and 15 % headroom"
            if any(parts.reserved for parts in self.plan.on(device)):
                how = f"{shown_size(needed)} needed; engines take a fraction of the card"
            yield f"{device}: {shown_size(planned)} ({how})"

    def _verdict(self) -> Iterator[str]:
        if not self.limit:
            return
        place = self.card.name if self.card is not None else "the memory of the host"
        if self.fits:
            yield f"fits {place}, of which programs may use {shown_size(self.limit)}"
            return
        yield f"does not fit {place}, of which programs may use {shown_size(self.limit)}:"
        yield from (f"  {reason}" for reason in self._reasons())
        yield "what would help:"
        for change in self._changes():
            yield f"  '{change.facts.name}': {change.what}, saves {shown_size(change.saved)}"
        number = fewest(self.facts, self.card) if self.card is not None else 0
        if number > len(self.plan.place.gpus):
            yield f"  {number} cards, with language models split over them (tensor_parallel_size)"
        yield "  fewer models, or a larger place"

    def _reasons(self) -> Iterator[str]:
        for device, size in self.plan.excess(self.limit).items():
            yield f"{device}: {shown_size(size)} too much"
        for model in self.plan.unsplit():
            wanted = model.facts.settings.parallel
            yield f"'{model.facts.name}' is to be split over {wanted} GPUs"
        for model in self.plan.elsewhere():
            yield f"'{model.facts.name}' has instances on GPUs that are not there"
        if self.card is not None and self.card.gigabytes < LARGE_CARD:
            for device in self.plan.devices[:-1]:
                name, size = self.plan.largest(device)
                if size > LARGE:
                    yield f"'{name}' has more than 40 GB, and wants a card of {LARGE_CARD} GB"

    def _changes(self) -> Sequence[Change]:
        most = max(self.plan.excess(self.limit).values(), default=0)
        if not most and self.plan.elsewhere():
            return []  # no smaller model would help
        return suggestions(self.facts, self.plan.place, most)[:_MOST_CHANGES]

    def _changes_json(self) -> list[dict[str, Any]]:
        return [
            {"model": change.facts.name, "change": change.what, "saves": change.saved}
            for change in self._changes()
        ]

    def _cards(self) -> Iterator[str]:
        found = fitting_cards(self.facts)
        if not found:
            yield "cards: it fits none, nor eight of them"
        for number in sorted({number for _, number in found}):
            names = ", ".join(card.key for card, fewest in reversed(found) if fewest == number)
            yield f"cards: {names}" if number == 1 else f"cards, {number} of them: {names}"


def _table(plan: Plan) -> list[str]:
    head = ("model", "device", "instances", "weights", "KV cache", "activations", "runtime", "sum")
    rows: list[tuple[str, ...]] = [head]
    for model in plan.models:
        name = f"{model.facts.name}:{model.facts.version}"
        for device, parts in model.parts.items():
            if parts.total or device in model.devices:
                rows.append((name, device, str(model.instances), *_cells(parts)))
        if not model.parts:
            rows.append((name, *("-",) * 7))
    for device, parts in plan.server.items():
        if parts.total:
            rows.append(("(server)", device, "", *_cells(parts)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _cells(parts: Parts) -> tuple[str, ...]:
    heaviest = sorted(parts.weights.items(), key=lambda pair: -pair[1])
    weights = " + ".join(f"{shown_size(size)} {dtype}" for dtype, size in heaviest[:3])
    others = sum(size for _, size in heaviest[3:])
    weights += f" + {shown_size(others)} of others" if others else ""
    sizes = (parts.kv_cache, parts.activations, parts.runtime, parts.total)
    return (weights or "-", *(shown_size(size) if size else "-" for size in sizes))


def _parts_json(parts: Parts) -> dict[str, Any]:
    return {
        "weights": dict(parts.weights),
        "kv_cache": parts.kv_cache,
        "activations": parts.activations,
        "runtime": parts.runtime,
        "reserved": parts.reserved,
        "sum": parts.total,
        "planned": parts.planned,
    }


def _model_json(model: ModelEstimate) -> dict[str, Any]:
    facts = model.facts
    return {
        "name": facts.name,
        "version": facts.version,
        "backend": facts.config.backend,
        "instances": model.instances,
        "devices": {device: _parts_json(parts) for device, parts in model.parts.items()},
        "notes": list(model.notes),
    }
