"""The rate limiter: instances acquire resources to execute, by weighted priority (I-13 to I-17).

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
"""In a limit: it holds for every device, or for the global resource of that name."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The capacity of a resource, in units."""

    name: str
    count: int
    device: int = ANY_DEVICE


class ResourceClaim:
    """The claim of one instance to resources, and its place in the queue for them.

    The instance runs while it holds `needs`. A run takes `priority` units of weighted time, from
    `at` on, and the run that would end first comes first: one with twice the number runs half as
    often where both wait (I-14). `on_offer` is called when a queued claim may run.
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
    def rank(self) -> tuple[int, int, int]:
        """Position in the queue, lowest first: by the end of its next run in weighted time, of
        equal ones the lower priority number, then the one that waits longer.
        """
        return self.at + self.priority, self.priority, self.order


class RateLimiter:
    """Allocates resources within their limits, without starvation and without idle units.

    A queued claim reserves its needs: later ones run meanwhile on units beyond the reservations of
    those before them. Without limits, the capacity of a resource is the largest need of it.
    """

    def __init__(self, limits: Iterable[Limit] = ()) -> None:
        self._limits = {(limit.name, limit.device): limit.count for limit in limits}
        self._claims: list[ResourceClaim] = []
        self._queue: list[ResourceClaim] = []
        self._used: Counter[Resource] = Counter()
        self._now: Counter[Resource] = Counter()  # in weighted time
        self._orders = count()

    def register(self, claim: ResourceClaim) -> None:
        """Add an instance; raises `ModelLoadError` if its needs exceed the limits."""
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
        """Remove an instance, which holds no resources any more."""
        self._claims.remove(claim)
        self._leave_queue(claim)

    def may_run(self, claim: ResourceClaim) -> bool:
        """Whether the instance may run now; if not, its claim is queued for an offer."""
        if claim not in self._queue:
            claim.at, claim.order = self._start(claim), next(self._orders)
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
        """Allocate the needs of an instance, which runs now."""
        self._leave_queue(claim)
        for resource in claim.needs:
            self._now[resource] = max(self._now[resource], claim.at)
        claim.at += claim.priority
        self._used += claim.needs

    def release(self, claim: ResourceClaim) -> None:
        """Free the needs of an instance, which has run."""
        self._used -= claim.needs

    def offer(self) -> None:
        """Offer resources to the queued claims that may run now.

        One that does not acquire them has nothing to run any more, and leaves the queue.
        """
        left = True
        while left:
            left = False
            for claim in sorted(self._queue, key=lambda claim: claim.rank):
                if claim in self._queue and self.may_run(claim):
                    if claim.on_offer is not None:
                        claim.on_offer()
                    left |= self._leave_queue(claim)

    def _start(self, claim: ResourceClaim) -> int:
        """Start of its next run in weighted time: the end of its last one.

        But no earlier than the latest run with a resource that it needs, so that an instance that
        had nothing to do does not get every turn until it has caught up.
        """
        return max(claim.at, *(self._now[resource] for resource in claim.needs), 0)

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
        if device is None:  # a limit for any device counts
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
