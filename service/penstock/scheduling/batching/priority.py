"""Priority levels and their queue policies: timeouts and size limits (contract D-09, D-10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.config import DynamicBatching, QueuePolicy, TimeoutAction


@dataclass(frozen=True, slots=True)
class LevelPolicy:
    """The queue policy of one level: seconds, and a size in requests; 0 is no limit.

    A request that times out is rejected or, where `delays`, moved behind the others of its level.
    """

    timeout: float = 0.0
    delays: bool = False
    overridable: bool = False
    max_queue_size: int = 0

    @classmethod
    def from_config(cls, policy: QueuePolicy | None) -> LevelPolicy:
        """Convert a configured policy; `None` limits nothing."""
        if policy is None:
            return cls()
        return cls(
            timeout=policy.default_timeout_microseconds / 1e6,
            delays=policy.timeout_action is TimeoutAction.DELAY,
            overridable=policy.allow_timeout_override,
            max_queue_size=policy.max_queue_size,
        )

    def queue_timeout(self, asked: float) -> float:
        """The timeout of a request that asks for `asked` seconds: it can only lower the limit."""
        return asked if self.overridable and 0.0 < asked < self.timeout else self.timeout


@dataclass(frozen=True, slots=True)
class PriorityLevels:
    """Levels 1 (served first) to `count`; with a count of 0 all requests are of level 0."""

    count: int = 0
    default: int = 0
    default_policy: LevelPolicy = LevelPolicy()
    policies: Mapping[int, LevelPolicy] = field(default_factory=dict)

    @classmethod
    def from_config(cls, batching: DynamicBatching) -> PriorityLevels:
        """Convert the configured levels; without levels, only the default policy counts."""
        default_policy = LevelPolicy.from_config(batching.default_queue_policy)
        if not batching.priority_levels:
            return cls(default_policy=default_policy)
        own = batching.priority_queue_policy.items()
        return cls(
            count=batching.priority_levels,
            default=batching.default_priority_level,
            default_policy=default_policy,
            policies={level: LevelPolicy.from_config(policy) for level, policy in own},
        )

    def level(self, priority: int) -> int:
        """The level of a request; the default one for a priority out of range."""
        return priority if 0 < priority <= self.count else self.default

    def policy(self, level: int) -> LevelPolicy:
        """The queue policy of `level`."""
        return self.policies.get(level, self.default_policy)
