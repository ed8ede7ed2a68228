"""Which instances may execute together: decisions of the rate limiter (contract I-13 to I-17).

Knows no clock and no task. Instances of all models share one limiter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from penstock.core.errors import ModelLoadError

Resource = tuple[str, int | None]
"""Name and device; a global resource has no device."""

ANY_DEVICE = -1
"""In a limit: as much on every device, or of the global resource of that name."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How much there is of a resource."""

    name: str
    count: int
    device: int = ANY_DEVICE


class ResourceClaim:
    """One instance's place among those that want to execute.

    It runs when it holds `needs`. Each run puts it back by `priority`, so one with twice the
    number runs half as often where both wait (I-14). `on_offer` is called when it may run.
    """

    __slots__ = ("at", "needs", "on_offer", "order", "priority")

    def __init__(self, needs: Mapping[Resource, int], priority: int) -> None:
        self.needs = Counter({resource: n for resource, n in needs.items() if n})
        self.priority = priority
        self.on_offer: Callable[[], None] | None = None
        self.at = 0
        self.order = 0

    @property
    def signature(self) -> Hashable:
        """Equal for instances with the same needs and priority."""
        return frozenset(self.needs.items()), self.priority

    @property
    def rank(self) -> tuple[int, int]:
        """Who has run less comes first; among equals, who has waited longer."""
        return self.at, self.order


class RateLimiter:
    """Hands out resources so that nobody exceeds them, nobody starves, and none lie idle in vain.

    A claim that waits has a claim to what it needs: later ones run meanwhile on what is left
    beyond the claims of those before them. Without limits there is as much of each resource as
    the neediest instance asks for.
    """

    def __init__(self, limits: Iterable[Limit] = ()) -> None:
        self._limits = {(limit.name, limit.device): limit.count for limit in limits}
        self._claims: list[ResourceClaim] = []
        self._queue: list[ResourceClaim] = []
        self._used: Counter[Resource] = Counter()
        self._now = 0
        self._orders = count()

    def register(self, claim: ResourceClaim) -> None:
        """Let an instance take part; raises `ModelLoadError` when it could never run."""
        for resource, need in claim.needs.items():
            if self._limits and (limit := self._limit(resource)) < need:
                raise ModelLoadError(
                    f'Resource count for "{resource[0]}" is limited to {limit} which will prevent '
                    "scheduling of one or more model instances, the minimum required count is "
                    f"{need}"
                )
        self._refuse_mixed([*self._claims, claim])
        self._claims.append(claim)

    def unregister(self, claim: ResourceClaim) -> None:
        """The instance is gone; what it held was given back before."""
        self._claims.remove(claim)
        self._leave_queue(claim)

    def may_run(self, claim: ResourceClaim) -> bool:
        """Whether the instance may run now; if not, it waits in line for an offer."""
        if claim not in self._queue:
            claim.at, claim.order = max(claim.at, self._now), next(self._orders)
        claimed: Counter[Resource] = Counter()
        for other in self._queue:
            if other is not claim and other.rank < claim.rank:
                claimed += other.needs
        if self._fits(claim, claimed):
            return True
        if claim not in self._queue:
            self._queue.append(claim)
        return False

    def acquire(self, claim: ResourceClaim) -> None:
        """The instance runs, and holds what it needs."""
        self._leave_queue(claim)
        self._now = claim.at = max(claim.at, self._now)
        claim.at += claim.priority
        self._used += claim.needs

    def release(self, claim: ResourceClaim) -> None:
        """The instance has run."""
        self._used -= claim.needs

    def offer(self) -> None:
        """Offer resources to the queued claims that may run now.

        Who does not take it has nothing to run any more, and leaves the line.
        """
        left = True
        while left:
            left = False
            for claim in sorted(self._queue, key=lambda claim: claim.rank):
                if claim in self._queue and self.may_run(claim):
                    if claim.on_offer is not None:
                        claim.on_offer()
                    left |= self._leave_queue(claim)

    def _leave_queue(self, claim: ResourceClaim) -> bool:
        if claim not in self._queue:
            return False
        self._queue.remove(claim)
        return True

    def _fits(self, claim: ResourceClaim, claimed: Counter[Resource]) -> bool:
        return all(
            need <= self._capacity(resource) - self._used[resource] - claimed[resource]
            for resource, need in claim.needs.items()
        )

    def _capacity(self, resource: Resource) -> int:
        if self._limits:
            return self._limit(resource)
        return max(claim.needs[resource] for claim in self._claims)

    def _limit(self, resource: Resource) -> int:
        name, device = resource
        counts = {at: limit for (known, at), limit in self._limits.items() if known == name}
        if device is None:  # whatever device the limit was given for
            return max(counts.values(), default=0)
        return counts.get(device, counts.get(ANY_DEVICE, 0))

    @staticmethod
    def _refuse_mixed(claims: Iterable[ResourceClaim]) -> None:
        known = {resource for claim in claims for resource in claim.needs}
        on_devices = {name for name, device in known if device is not None}
        for name, device in sorted(known, key=str):
            if device is None and name in on_devices:
                raise ModelLoadError(
                    f'Resource "{name}" is present as both global and device-specific resource '
                    "in the model configuration."
                )
