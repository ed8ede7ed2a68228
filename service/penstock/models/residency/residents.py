"""`Residents`: the models that are loaded, since when, and which of them may go."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from math import ceil

from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.residency.known_model import Kept, KnownModel
from penstock.models.residency.memory import ModelMemory, Resident
from penstock.models.serving.loaded_model import LoadedModel

_TURN = 4.0
"""How many times as long as its load took a busy model serves before others have their turn, so
that of the time of each part of the memory no more than a fifth goes into loading.
"""


class Residents:
    """Tells of each loaded model what decides whether it goes; `entering` ones are in a load."""

    def __init__(
        self, lifecycle: ModelLifecycle, known: Mapping[str, KnownModel], memory: ModelMemory
    ) -> None:
        self._lifecycle = lifecycle
        self._known = known
        self._memory = memory
        self._since: dict[str, float] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self.entering = Counter[str]()
        self.brought = set[str]()
        """Models whose configuration or files came with a request: no call could load these."""

    def begin(self, name: str) -> None:
        """A model has been loaded."""
        self._since[name] = time.monotonic()

    def note(self, name: str, *, brought: bool) -> None:
        """A model has been loaded with what a request brought, or as its repository has it."""
        (self.brought.add if brought else self.brought.discard)(name)

    def tidy(self) -> None:
        """Forget when models were loaded that are gone, and count how long they were."""
        now = time.monotonic()
        for name in [one for one in self._since if not self._lifecycle.catalog.served(one)]:
            self._seconds[name] += now - self._since.pop(name)

    def seconds(self) -> Mapping[str, float]:
        """Seconds that each model was loaded, since the start."""
        now, found = time.monotonic(), self._seconds.copy()
        for name, since in self._since.items():
            found[name] += now - since
        return found

    def found(self) -> list[Resident]:
        """The models that are loaded, and those that are leaving, with what is known of each."""
        held, now = self._memory.by_limit(), time.monotonic()
        names = {model.config.name for model in self._lifecycle.catalog.models()}
        found = [self._resident(name, held.get(name, {}), now) for name in names]
        return [*found, *self._leaving()]

    def may_go(self, name: str, *, busy: bool) -> bool:
        """Whether a model may be unloaded now; `busy`: also one that has requests, in its turn."""
        if not self._lifecycle.catalog.served(name):
            return True
        found = self._resident(name, {}, time.monotonic())
        return found.evictable or (busy and found.ripe)

    def _resident(self, name: str, sizes: Mapping[str, int], now: float) -> Resident:
        models = self._with_dependents(name)
        since = self._since.setdefault(name, now)
        seconds = now - since
        idle = now - max(since, max(model.statistics.last_ended for model in models) / 1e9)
        took = max(model.load_seconds for model in models)
        may_go = self._may_go(name, seconds)
        free = may_go and not any(map(is_busy, models))
        return Resident(
            name,
            sizes,
            idle,
            took,
            evictable=free,
            ripe=may_go
            and not any(map(_has_sequences, models))
            and seconds >= self._turn_seconds(name),
            pinned=self._is_pinned(name),
        )

    def _leaving(self) -> Iterator[Resident]:
        for model in self._lifecycle.leaving():
            if model.claim is not None:
                sizes = self._memory.limited(model.claim.sizes)
                yield Resident(model.config.name, sizes, 0, 0, evictable=False, leaving=True)

    def _turn_seconds(self, name: str) -> float:
        """How long a busy model serves at least after its load."""
        models = self._lifecycle.catalog.served(name).values()
        took = max((model.load_seconds for model in models), default=0.0)
        known = self._known.get(name)
        return max(0.0 if known is None else known.min_resident_seconds, _TURN * took)

    def _is_pinned(self, name: str) -> bool:
        """Whether a model, or an ensemble that needs it, stays whatever happens."""
        names = {name, *self._lifecycle.dependents(name)}
        models = [self._known.get(one) for one in names]
        stays = any(one is None or one.kept is not Kept.DEMAND for one in models)
        return stays or not names.isdisjoint(self.brought)

    def _with_dependents(self, name: str) -> list[LoadedModel]:
        names = [name, *self._lifecycle.dependents(name)]
        return [model for one in names for model in self._lifecycle.catalog.served(one).values()]

    def _may_go(self, name: str, resident_seconds: float) -> bool:
        """Whether a model, and each ensemble that needs it, may be unloaded if it is idle."""
        if self._is_pinned(name):
            return False
        for one in [name, *self._lifecycle.dependents(name)]:
            least = self._known[one].min_resident_seconds
            if self.entering[one] or resident_seconds < least:
                return False
        return True

    def retry_after(self) -> int:
        """Seconds until a model may have had its turn, rounded up."""
        now = time.monotonic()
        left = [self._turn_seconds(name) - now + since for name, since in self._since.items()]
        return max(1, ceil(min(left, default=0.0)))


def is_busy(model: LoadedModel) -> bool:
    """Whether requests or sequences keep a model; an ensemble that needs it is asked itself."""
    return bool(model.statistics.in_flight) or _has_sequences(model)


def _has_sequences(model: LoadedModel) -> bool:
    return model.sequences is not None and model.sequences.has_sequences
