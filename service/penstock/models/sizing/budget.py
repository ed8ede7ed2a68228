"""`MemoryBudget`: the account of the memory that models may take, as they are estimated."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from types import TracebackType

from penstock.core.config import LatestVersions
from penstock.core.errors import UnavailableError
from penstock.models.sizing.estimate import ModelEstimate, ModelFacts, Place, estimate
from penstock.models.sizing.plan import changes
from penstock.models.sizing.sizes import shown_size

logger = logging.getLogger(__name__)

_MOST_NAMED = 3
"""Models and changes that a refusal names."""


class Claim:
    """What a version of a model has of a budget, until it is released.

    As a context, it is released where what is done in it fails.
    """

    def __init__(self, budget: MemoryBudget, name: str, version: int, size: int) -> None:
        self._budget = budget
        self.name = name
        self.version = version
        self.size = size

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.release()

    def release(self) -> None:
        """Give all of it back; a second call does nothing."""
        self._budget.shrink(self, self.size)

    def absorb(self, other: Claim) -> None:
        """Take over what another claim has."""
        size = other.size
        other.size -= size
        self.size += size

    def split(self, size: int) -> Claim:
        """Hand over a part, to a claim of its own."""
        size = min(size, self.size)
        self.size -= size
        return Claim(self._budget, self.name, self.version, size)


class MemoryBudget:
    """Bytes that all models may take together, and what is left of them.

    `refused` are the bytes that models needed in all when they found no room last. `tells_names`
    says whether errors may name other models: where an access policy is on, not every caller may
    know of them.

    Lives on the event loop. Counted is what a model takes of the GPUs that it runs on, or of the
    host, with headroom; not the server's own process.
    """

    def __init__(
        self, limit: int, gpus: tuple[int, ...] = (), card: int = 0, *, tells_names: bool = True
    ) -> None:
        self.tells_names = tells_names
        self._limit = limit
        self._place = Place(gpus, card)
        self._used = 0
        self._held = Counter[tuple[str, int]]()
        self.refused: dict[str, int] = {}

    @property
    def used(self) -> int:
        """Bytes that models have now."""
        return self._used

    @property
    def left(self) -> int:
        """Bytes that no model has."""
        return self._limit - self._used

    @property
    def gpus(self) -> tuple[int, ...]:
        """The GPUs whose memory is counted."""
        return self._place.gpus

    def needed(self, versions: Iterable[ModelFacts]) -> int:
        """What versions of models are estimated to need together."""
        return sum(estimate(facts, self._place).planned for facts in versions)

    def by_model(self) -> Counter[str]:
        """Bytes that each model has now, all of its versions together."""
        models = Counter[str]()
        for (name, _), size in self._held.items():
            models[name] += size
        return models

    def claim(self, facts: ModelFacts) -> Claim:
        """Take what a model needs. Raises `UnavailableError` where it is not left."""
        found = estimate(facts, self._place)
        return self._taken(found, found.planned)

    def grown(self, claim: Claim, facts: ModelFacts) -> Claim | None:
        """Take what a model needs more than it has; `None` if it needs no more.

        Raises as `claim` does.
        """
        found = estimate(facts, self._place)
        more = found.planned - claim.size
        return self._taken(found, more, growth=True) if more > 0 else None

    def surplus(self, claim: Claim, facts: ModelFacts) -> int:
        """What a claim has more than the model needs."""
        return max(0, claim.size - estimate(facts, self._place).planned)

    def shrink(self, claim: Claim, size: int) -> None:
        """Give a part of a claim back."""
        size = min(size, claim.size)
        if not size:
            return
        claim.size -= size
        self._used -= size
        held = claim.name, claim.version
        self._held[held] -= size
        if not self._held[held]:
            del self._held[held]

    def _taken(self, found: ModelEstimate, size: int, *, growth: bool = False) -> Claim:
        name, version = found.facts.name, found.facts.version
        if self._used + size > self._limit:
            self.refused[name] = found.planned + self._of_other_versions(name, version)
            raise UnavailableError(self._refusal(found, size, growth))
        self._used += size
        self._held[name, version] += size
        logger.info(
            "'%s' version %d takes %s of the memory budget, of which %s are left",
            name,
            version,
            shown_size(size),
            shown_size(self._limit - self._used),
        )
        return Claim(self, name, version, size)

    def _of_other_versions(self, name: str, version: int) -> int:
        return sum(size for (n, v), size in self._held.items() if n == name and v != version)

    def _refusal(self, found: ModelEstimate, size: int, growth: bool) -> str:
        left = self._limit - self._used
        ways = [] if growth else self._of_itself(found.facts)
        ways = ways or self._unloads(found.facts.name, size - left)
        ways += [
            f"{change.what} (saves {shown_size(change.saved)})"
            for change in changes(found.facts, self._place, size - left)[:_MOST_NAMED]
        ]
        ways.append("a larger --memory-budget")
        return (
            f"model '{found.facts.name}' needs {shown_size(size)} of memory"
            f"{' more than it has' if growth else ''}, and of the"
            f" --memory-budget of {shown_size(self._limit)} there are {shown_size(left)} left;"
            f" what helps: {', or '.join(ways)}; 'penstock plan' shows the parts"
        )

    def _of_itself(self, facts: ModelFacts) -> list[str]:
        """What helps where the model is there already, in this version or in another."""
        name = facts.name
        if (name, facts.version) in self._held:
            return [f"unload '{name}' first, so that it is not there twice"]
        others = sorted(version for held, version in self._held if held == name)
        if not others:
            return []
        policy = facts.config.version_policy
        if policy is None or policy.latest == LatestVersions(
            1
        ):  # which this one takes the place of
            return [f"unload '{name}' first, so that version {others[-1]} is not there beside it"]
        return [f"a version_policy of '{name}' with fewer versions"]

    def _unloads(self, name: str, missing: int) -> list[str]:
        """Advice to unload: the smallest other model that is enough, else the largest."""
        if not self.tells_names:
            return ["unload others"]
        others = sorted((size, other) for other, size in self.by_model().items() if other != name)
        enough = [pair for pair in others if pair[0] >= missing] or others[-1:]
        return [f"unload '{other}' ({shown_size(size)})" for size, other in enough[:1]]
