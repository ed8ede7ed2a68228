"""`Plan`: the sum of models on each device, whether it fits, and what would make it fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.models.sizing.cards import Card, cards
from penstock.models.sizing.estimate import (
    ASSUMED,
    HOST,
    Engine,
    ModelEstimate,
    ModelFacts,
    Parts,
    Place,
    estimate,
    gpus_elsewhere,
    server_bytes,
)
from penstock.models.sizing.kv_cache import EngineSettings

LARGE = 40 * 10**9
"""Bytes of a model above which it wants a card of `LARGE_CARD` GB."""
LARGE_CARD = 80

_SPLITS = (1, 2, 4, 8)
"""Cards that a language model is split over."""

SMALLER: Final[Mapping[str, str]] = {
    "FP64": "FP32",
    "FP32": "FP16",
    "FP16": "FP8",
    "BF16": "FP8",
    "FP8": "INT4",
    "INT8": "INT4",
    "Q8_0": "Q4_0",
}
"""The data type of half the bytes, by the one that weights have."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Models at a place; `server` is what its process takes of each device besides."""

    models: Sequence[ModelEstimate]
    place: Place
    server: Mapping[str, Parts] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Iterable[ModelFacts], place: Place) -> Plan:
        """The models at this place, as they would be loaded."""
        models = [estimate(each, place) for each in facts]
        return cls(models, place, _server(models))

    @property
    def devices(self) -> Sequence[str]:
        """The GPUs, and the host last."""
        return [*(f"gpu{number}" for number in self.place.gpus), HOST]

    def on(self, device: str) -> Sequence[Parts]:
        """What the models and the server take of a device."""
        found = [one.parts[device] for one in self.models if device in one.parts]
        return [*found, self.server[device]] if device in self.server else found

    def needed(self, device: str) -> int:
        """The sum on a device, without headroom."""
        return sum(parts.total for parts in self.on(device))

    def planned(self, device: str) -> int:
        """The sum on a device, with headroom, or what engines take in its place."""
        return sum(parts.planned for parts in self.on(device))

    def largest(self, device: str) -> tuple[str, int]:
        """The name and the bytes of the largest model on a device."""
        sizes = [(one.parts[device].total, one.facts.name) for one in self.models
                 if device in one.parts]  # fmt: skip
        size, name = max(sizes, default=(0, ""))
        return name, size

    def excess(self, limit: int) -> dict[str, int]:
        """Bytes that are too many on each device that `limit` holds for: the GPUs, or the host."""
        over = {device: self.planned(device) - limit for device in self._limited()}
        return {device: size for device, size in over.items() if size > 0}

    def unsplit(self) -> Sequence[ModelEstimate]:
        """Models that are to be split over more GPUs than there are."""
        there = len(self.place.gpus)
        return [one for one in self.models if there and one.facts.settings.parallel > there]

    def elsewhere(self) -> Sequence[ModelEstimate]:
        """Models with instances on GPUs that are not there, where they count nowhere."""
        return [one for one in self.models if gpus_elsewhere(one.facts.config, self.place)]

    def fits(self, card: Card) -> bool:
        """Whether all of it fits cards of this kind, by the rule of large models too."""
        large = any(self.largest(device)[1] > LARGE for device in self._limited())
        if large and card.gigabytes < LARGE_CARD:
            return False
        return not (self.excess(card.usable) or self.unsplit() or self.elsewhere())

    def _limited(self) -> Sequence[str]:
        return self.devices[:-1] or (HOST,)


def _server(models: Sequence[ModelEstimate]) -> dict[str, Parts]:
    """The server's process, with each engine that has instances on its threads."""
    on_threads = [one for one in models if _on_threads(one)]
    engines = {one.facts.config.backend: Engine.of(one.facts.config.backend) for one in on_threads}
    found = {HOST: server_bytes() + sum(engine.process for engine in engines.values())}
    for one in on_threads:
        context = engines[one.facts.config.backend].context
        for device in one.devices:
            if device != HOST:  # one context of CUDA serves all engines of a process
                found[device] = max(found.get(device, 0), context)
    return {device: Parts(runtime=size) for device, size in found.items()}


def _on_threads(model: ModelEstimate) -> bool:
    config = model.facts.config
    if config.is_ensemble:
        return False
    return (config.parameter("penstock.host") or Engine.of(config.backend).host) == "thread"


# -- what would fit ----------------------------------------------------------------------------


def fitting_cards(facts: Sequence[ModelFacts]) -> list[tuple[Card, int]]:
    """Each card that everything fits on, with the smallest number of them that does."""
    found = []
    for card in cards().values():
        number = fewest(facts, card)
        if number:
            found.append((card, number))
    return found


def fewest(facts: Sequence[ModelFacts], card: Card) -> int:
    """The fewest cards that everything fits on, language models split over them; 0 for none."""
    for number in _SPLITS:
        place = Place(tuple(range(number)), card.usable)
        if Plan.of([_split(each, number) for each in facts], place).fits(card):
            return number
    return 0


def _split(facts: ModelFacts, number: int) -> ModelFacts:
    assumed = facts.config.backend == ASSUMED
    on_gpus = facts.attention is not None and Engine.of(facts.config.backend).device != "cpu"
    if not (assumed or on_gpus):
        return facts
    return replace(facts, settings=replace(facts.settings, parallel=number))


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one model: what to do, in words, and the bytes that it saves where it is most."""

    what: str
    saved: int
    facts: ModelFacts


def changes(facts: ModelFacts, place: Place, excess: int) -> list[Change]:
    """Changes of a model that make it smaller, those that save most first.

    Of a cache it is the largest that saves `excess`, or the smallest that is of use.
    """
    now = estimate(facts, place).planned
    found = []
    for what, changed in _changed(facts, place, now - excess):
        saved = now - estimate(changed, place).planned
        if saved > 0:
            found.append(Change(what, saved, changed))
    return sorted(found, key=lambda change: -change.saved)


def _changed(facts: ModelFacts, place: Place, wanted: int) -> Iterator[tuple[str, ModelFacts]]:
    present = estimate(facts, place)
    groups = present.facts.config.instance_group
    fewer = sum(group.count for group in groups)
    if fewer > len(groups):
        yield f"{len(groups)} instead of {fewer} instances", present.facts.with_one_instance()
    heavy = max(facts.weights, key=lambda dtype: facts.weights[dtype], default="")
    if heavy in SMALLER:
        weights = dict(facts.weights)
        half = weights.pop(heavy) // 2
        weights[SMALLER[heavy]] = weights.get(SMALLER[heavy], 0) + half
        yield f"weights in {SMALLER[heavy]} instead of {heavy}", replace(facts, weights=weights)
    yield from _caches(facts, place, wanted)
    fraction = _lower_fraction(facts, place)
    if fraction:
        settings = replace(facts.settings, fraction=fraction)
        yield f"gpu_memory_utilization of {fraction:.2f}", replace(facts, settings=settings)


def _caches(facts: ModelFacts, place: Place, wanted: int) -> Iterator[tuple[str, ModelFacts]]:
    """The first of ever smaller caches that makes the model as small as `wanted`, or the last."""
    smallest = None
    for what, settings in _smaller_settings(facts):
        smallest = what, replace(facts, settings=settings)
        if estimate(smallest[1], place).planned <= wanted:
            break
    if smallest is not None:
        yield smallest


def _smaller_settings(facts: ModelFacts) -> Iterator[tuple[str, EngineSettings]]:
    settings, attention = facts.settings, facts.attention
    if attention is None:
        return
    least = settings.length or attention.context or 1
    tokens = settings.tokens or Engine.of(facts.config.backend).tokens
    sequences = settings.sequences
    while tokens // 2 >= least:
        tokens //= 2
        yield f"a KV cache of {tokens:,} tokens", replace(settings, tokens=tokens)
    while not tokens and sequences > 1:
        sequences //= 2
        yield f"a KV cache of {sequences} sequences", replace(settings, sequences=sequences)


def _lower_fraction(facts: ModelFacts, place: Place) -> float:
    """The smallest fraction of a card, in twentieths, in which a model finds what it needs."""
    parts = [p for d, p in estimate(facts, place).parts.items() if d != HOST and p.reserved]
    if not parts or not place.memory or not facts.weights:  # what it needs is not known
        return 0.0
    steps = max(-(-20 * replace(one, reserved=0).planned // place.memory) for one in parts)
    return steps / 20 if 0 < steps < 20 else 0.0


def suggestions(facts: Sequence[ModelFacts], place: Place, excess: int) -> list[Change]:
    """Changes of any of the models that help, those that save most first."""
    found = [change for each in facts for change in changes(each, place, excess)]
    return sorted(found, key=lambda change: -change.saved)
