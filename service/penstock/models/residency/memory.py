"""What models take of the memory budget, and which of them go so that another one finds room."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.core.errors import InferenceError
from penstock.models.residency.known_model import KnownModel
from penstock.models.sizing.budget import MemoryBudget
from penstock.models.sizing.sizes import shown_size

_LEAST_SECONDS = 0.001
"""So that nothing is divided by zero; shorter times are alike."""

_MOST_NAMED = 3
"""Models that an error names."""


@dataclass(frozen=True, slots=True)
class Resident:
    """A model that is loaded.

    `size` is what it has of the memory budget, in bytes. It was idle for `idle_seconds`, and
    loading it took `load_seconds`. One that is not `evictable` stays: it is pinned, has requests or
    sequences, or has only just been loaded.
    """

    name: str
    size: int
    idle_seconds: float
    load_seconds: float
    evictable: bool = True

    @property
    def worth(self) -> float:
        """What keeping it saves: seconds of loading, for each byte and each second of idleness."""
        idle = max(self.idle_seconds, _LEAST_SECONDS)
        return max(self.load_seconds, _LEAST_SECONDS) / (idle * max(self.size, 1))


def victims(residents: Iterable[Resident], missing: int) -> list[str]:
    """The models to unload so that `missing` bytes come free, those worth least first.

    None is chosen without which there is room still. Empty where all that may go are not enough.
    """
    ranked = sorted(
        (one for one in residents if one.evictable and one.size > 0),
        key=lambda one: (one.worth, one.name),
    )
    chosen: list[Resident] = []
    freed = 0
    for one in ranked:
        if freed >= missing:
            break
        chosen.append(one)
        freed += one.size
    if freed < missing:
        return []
    for one in reversed(chosen.copy()):
        if freed - one.size >= missing:
            chosen.remove(one)
            freed -= one.size
    return [one.name for one in chosen]


class ModelMemory:
    """What models have of a budget, and what they will need; without a budget that is nothing.

    A size is what the model had when it was loaded last, before that what it is estimated to need.
    """

    def __init__(self, budget: MemoryBudget | None) -> None:
        self._budget = budget
        self._sizes: dict[str, int] = {}

    async def lacking(self, models: Mapping[str, KnownModel | None]) -> int:
        """The bytes that these models lack, as far as is known before they are loaded."""
        if self._budget is None:
            return 0
        needed = 0
        for name, known in models.items():
            size = self._sizes.get(name)
            if size is None:
                size = await asyncio.to_thread(_estimated, self._budget, known)
                self._sizes[name] = size
            needed += size
        return max(0, needed - self._budget.left)

    def remember(self, name: str) -> None:
        """Keep what a model has, now that it is loaded."""
        self._sizes[name] = self.held()[name]

    def forget(self, name: str) -> None:
        """The files of a model have changed."""
        self._sizes.pop(name, None)

    def held(self) -> Counter[str]:
        """What each model has of the budget, in bytes."""
        return Counter() if self._budget is None else self._budget.by_model()

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


def _estimated(budget: MemoryBudget, known: KnownModel | None) -> int:
    """What a model is estimated to need; 0 where that is not known before it is loaded."""
    try:
        return 0 if known is None else budget.needed(known.facts(budget.gpus))
    except InferenceError:  # which the load will tell
        return 0
