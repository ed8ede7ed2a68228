"""Rules about dynamic batching: sizes, priorities and the order of responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.core.config import DynamicBatching, ModelConfig, QueuePolicy, TimeoutAction


def batching_problems(config: ModelConfig) -> Iterator[str]:
    """The whole of `dynamic_batching`."""
    batching = config.dynamic_batching
    if batching is None:
        return
    what = "dynamic batching preferred size"
    yield from size_problems(batching.preferred_batch_size, config, what)
    for problem in (*_priority_problems(batching), *_ordering_problems(batching)):
        yield f"{problem} for {config.name}"


def size_problems(sizes: Iterable[int], config: ModelConfig, what: str) -> Iterator[str]:
    """Preferred batch sizes lie between 1 and the model's largest."""
    for size in sizes:
        if size <= 0:
            yield f"{what} must be positive for {config.name}"
        if size > config.max_batch_size:
            yield f"{what} must be <= max batch size for {config.name}"


def _priority_problems(batching: DynamicBatching) -> Iterator[str]:
    levels = batching.priority_levels
    if levels == 0:
        return
    if not 1 <= batching.default_priority_level <= levels:
        yield f"default priority level must be in range [1, {levels}]"
    if not all(1 <= level <= levels for level in batching.priority_queue_policy):
        yield f"priority queue policy must have priority level in range [1, {levels}]"


def _ordering_problems(batching: DynamicBatching) -> Iterator[str]:
    """Who keeps the order of responses can neither prefer nor postpone requests."""
    if not batching.preserve_ordering:
        return
    if batching.priority_levels > 1:
        yield "Only one priority level is allowed when 'preserve_ordering' is true"
    policies = (batching.default_queue_policy, *batching.priority_queue_policy.values())
    if any(_delays(policy) for policy in policies):
        yield "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true"


def _delays(policy: QueuePolicy | None) -> bool:
    return (
        policy is not None
        and policy.default_timeout_microseconds != 0
        and policy.timeout_action is TimeoutAction.DELAY
    )
