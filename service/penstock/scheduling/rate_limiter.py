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


class Turn:
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

    A turn that waits has a claim to what it needs: later ones run meanwhile on what is left
    beyond the claims of those before them. Without limits there is as much of each resource as
    the neediest instance asks for.
    """

    def __init__(self, limits: Iterable[Limit] = ()) -> None:
        self._limits = {(limit.name, limit.device): limit.count for limit in limits}
        self._turns: list[Turn] = []
        self._line: list[Turn] = []
        self._used: Counter[Resource] = Counter()
        self._now = 0
        self._orders = count()

    def register(self, turn: Turn) -> None:
        """Let an instance take part; raises `ModelLoadError` when it could never run."""
        for resource, need in turn.needs.items():
            if self._limits and (limit := self._limit(resource)) < need:
                raise ModelLoadError(
                    f'Resource count for "{resource[0]}" is limited to {limit} which will prevent '
                    "scheduling of one or more model instances, the minimum required count is "
                    f"{need}"
                )
        self._refuse_mixed([*self._turns, turn])
        self._turns.append(turn)

    def unregister(self, turn: Turn) -> None:
        """The instance is gone; what it held was given back before."""
        self._turns.remove(turn)
        self._leave_line(turn)

    def may_run(self, turn: Turn) -> bool:
        """Whether the instance may run now; if not, it waits in line for an offer."""
        if turn not in self._line:
            turn.at, turn.order = max(turn.at, self._now), next(self._orders)
        claimed: Counter[Resource] = Counter()
        for other in self._line:
            if other is not turn and other.rank < turn.rank:
                claimed += other.needs
        if self._fits(turn, claimed):
            return True
        if turn not in self._line:
            self._line.append(turn)
        return False

    def take(self, turn: Turn) -> None:
        """The instance runs, and holds what it needs."""
        self._leave_line(turn)
        self._now = turn.at = max(turn.at, self._now)
        turn.at += turn.priority
        self._used += turn.needs

    def give_back(self, turn: Turn) -> None:
        """The instance has run."""
        self._used -= turn.needs

    def offer(self) -> None:
        """Offer their turn to those in line who may run now.

        Who does not take it has nothing to run any more, and leaves the line.
        """
        left = True
        while left:
            left = False
            for turn in sorted(self._line, key=lambda turn: turn.rank):
                if turn in self._line and self.may_run(turn):
                    if turn.on_offer is not None:
                        turn.on_offer()
                    left |= self._leave_line(turn)

    def _leave_line(self, turn: Turn) -> bool:
        if turn not in self._line:
            return False
        self._line.remove(turn)
        return True

    def _fits(self, turn: Turn, claimed: Counter[Resource]) -> bool:
        return all(
            need <= self._capacity(resource) - self._used[resource] - claimed[resource]
            for resource, need in turn.needs.items()
        )

    def _capacity(self, resource: Resource) -> int:
        if self._limits:
            return self._limit(resource)
        return max(turn.needs[resource] for turn in self._turns)

    def _limit(self, resource: Resource) -> int:
        name, device = resource
        of_name = {at: limit for (known, at), limit in self._limits.items() if known == name}
        if device is None:  # whatever device the limit was given for
            return max(of_name.values(), default=0)
        return of_name.get(device, of_name.get(ANY_DEVICE, 0))

    @staticmethod
    def _refuse_mixed(turns: Iterable[Turn]) -> None:
        known = {resource for turn in turns for resource in turn.needs}
        on_devices = {name for name, device in known if device is not None}
        for name, device in sorted(known, key=str):
            if device is None and name in on_devices:
                raise ModelLoadError(
                    f'Resource "{name}" is present as both global and device-specific resource '
                    "in the model configuration."
                )
