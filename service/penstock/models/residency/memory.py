"""What models take of the memory budget, and which of them go so that another one finds room."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.core.errors import InferenceError
from penstock.models.residency.known_model import KnownModel
from penstock.models.sizing.budget import Claim, MemoryBudget, Sizes
from penstock.models.sizing.sizes import shown_size

_LEAST_SECONDS = 0.001
"""So that nothing is divided by zero; shorter times are alike."""

_MOST_NAMED = 3
"""Models that an error names."""


@dataclass(frozen=True, slots=True)
class Resident:
    """A model that is loaded.

    `sizes` are what it has of the memory budget, in bytes by limit. It was idle for `idle_seconds`,
    and loading it took `load_seconds`. One that is not `evictable` stays: it is `pinned`, has
    requests or sequences, or has only just been loaded. A `ripe` one has requests, but has served
    long enough since its load for others to have their turn. One that is `leaving` takes no further
    requests: its memory comes free once those that it has are answered.
    """

    name: str
    sizes: Mapping[str, int]
    idle_seconds: float
    load_seconds: float
    evictable: bool = True
    ripe: bool = False
    pinned: bool = False
    leaving: bool = False

    def size(self, limits: Iterable[str]) -> int:
        """Bytes that it has under some of the limits."""
        return sum(self.sizes.get(limit, 0) for limit in limits)

    def worth(self, limits: Iterable[str]) -> float:
        """What keeping it saves: seconds of loading, for each byte and each second of idleness.

        Bytes count where they are lacking: under these limits.
        """
        idle = max(self.idle_seconds, _LEAST_SECONDS)
        return max(self.load_seconds, _LEAST_SECONDS) / (idle * max(self.size(limits), 1))


def victims(residents: Iterable[Resident], missing: Mapping[str, int]) -> list[str]:
    """The models to unload so that `missing` bytes by limit come free, those worth least first.

    Those that are evictable or ripe are asked, the latter behind the others. None is chosen without
    which there is room still. Empty where all that may go are not enough.
    """
    ranked = sorted(
        (one for one in residents if one.evictable or one.ripe),
        key=lambda one: (not one.evictable, one.worth(missing), one.name),
    )
    lacking, chosen = +Sizes(missing), list[Resident]()
    for one in ranked:
        if lacking & Sizes(one.sizes):
            chosen.append(one)
            lacking -= Sizes(one.sizes)
    if lacking:
        return []
    spare = Sizes({limit: -size for limit, size in missing.items()})
    for one in chosen:
        spare.update(one.sizes)
    for one in reversed(chosen.copy()):
        if all(spare[limit] >= one.sizes.get(limit, 0) for limit in missing):
            chosen.remove(one)
            spare.subtract(one.sizes)
    return [one.name for one in chosen]


class ModelMemory:
    """What models have of a budget, and what they will need; without a budget that is nothing.

    A size is what the model had when it was loaded last, before that what it is estimated to need.
    """

    def __init__(self, budget: MemoryBudget | None) -> None:
        self._budget = budget
        self._sizes: dict[str, Sizes] = {}

    async def lacking(self, models: Mapping[str, KnownModel | None]) -> Sizes:
        """The bytes by limit that these models lack, as far as is known before they are loaded."""
        if self._budget is None:
            return Sizes()
        needed = Sizes()
        for name, known in models.items():
            sizes = self._sizes.get(name)
            if sizes is None:
                sizes = await asyncio.to_thread(_needed, self._budget, known)
                self._sizes[name] = sizes
            needed += sizes
        return self._budget.lacking(needed)

    def remember(self, name: str) -> None:
        """Keep what a model has, now that it is loaded."""
        self._sizes[name] = self.by_device().get(name, Sizes())

    def forget(self, name: str) -> None:
        """The files of a model have changed."""
        self._sizes.pop(name, None)

    def excess(self) -> Sizes:
        """Bytes by limit that models were found to have more than they may."""
        return Sizes() if self._budget is None else self._budget.excess()

    def correct(self, claim: Claim, measured: Mapping[str, int]) -> None:
        """Count what a version of a model was found to take of devices."""
        if self._budget is not None:
            self._budget.correct(claim, measured)

    def held(self) -> Counter[str]:
        """What each model has of the budget, in bytes."""
        return Counter() if self._budget is None else self._budget.by_model()

    def by_device(self) -> Mapping[str, Sizes]:
        """What each model has of each device, in bytes."""
        return {} if self._budget is None else self._budget.by_device()

    def by_limit(self) -> Mapping[str, Sizes]:
        """What each model has under each limit of the budget, in bytes."""
        if (budget := self._budget) is None:
            return {}
        return {name: budget.limited(sizes) for name, sizes in budget.by_device().items()}

    def limited(self, sizes: Mapping[str, int]) -> Sizes:
        """Bytes by limit of what is on devices."""
        return Sizes() if self._budget is None else self._budget.limited(sizes)

    def shown(self, sizes: Mapping[str, int]) -> str:
        """Bytes by limit, for people."""
        return "nothing" if self._budget is None else self._budget.shown(sizes) or "nothing"

    def holders(self) -> str:
        """Which models have most of the budget, for an error."""
        if self._budget is None:
            return "it is still being loaded"
        if not self._budget.tells_names:
            return "others hold the memory"
        most = self.held().most_common(_MOST_NAMED)
        held = ", ".join(f"'{name}' {shown_size(size)}" for name, size in most)
        return f"most is held by {held}" if held else "nothing is held"

    def holds(self, models: Mapping[str, KnownModel | None]) -> bool:
        """Whether these have their memory already, as loads have before they begin."""
        held = self.held()
        return all(
            known is None or known.config.is_ensemble or held[n] for n, known in models.items()
        )

    def refused(self, names: Iterable[str]) -> bool:
        """Whether the last load of one of these found no room; what it needed is known then.

        That is no more than was estimated where another load took the room in between.
        """
        refused = {} if self._budget is None else self._budget.refused
        found = {name: refused[name] for name in names if name in refused}
        self._sizes |= found
        return bool(found)

    def ask_again(self, names: Iterable[str]) -> None:
        """Forget that the budget has refused these."""
        for name in names:
            if self._budget is not None:
                self._budget.refused.pop(name, None)


def _needed(budget: MemoryBudget, known: KnownModel | None) -> Sizes:
    """What a model needs, by device; nothing where that is not known before it is loaded."""
    try:
        return Sizes() if known is None else budget.needed(known.facts(budget.gpus))
    except InferenceError:  # which the load will tell
        return Sizes()
