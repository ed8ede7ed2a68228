"""Deadlock check: refuses calls between model instances that would close a wait-for cycle."""

from __future__ import annotations

from penstock.core.call_chain import Candidates, NestedCall, Wait, find_cycle
from penstock.core.config import ModelConfig
from penstock.core.errors import UnsupportedError
from penstock.core.request import InferenceRequest


class CallCycleCheck:
    """Checks the calls that instances, of any model, make to one model.

    `pool` returns the instances that can answer. Something `in_front` of their queue, such as a
    response cache, may answer without them, so that a cycle need not be a deadlock.
    """

    def __init__(self, config: ModelConfig, pool: Candidates, *, in_front: bool = False) -> None:
        self._name = config.name
        self._pool = pool
        self._certain = not (in_front or config.is_ensemble or _may_expire(config))

    def check(self, request: InferenceRequest) -> None:
        """Raise `UnsupportedError` for a request that only its own callers could answer."""
        pool = set(self._pool())
        if pool and pool <= {call.caller for call in request.call_chain}:
            names = [*(call.caller.instance for call in request.call_chain), self._name]
            raise UnsupportedError(
                f"model '{self._name}' is called by a request that its every instance is waiting"
                f" for: {' -> '.join(names)}; the call would wait for ever"
            )
        last = request.call_chain[-1]
        if last.blocking and self._certain and (others := find_cycle(last, self._pool)):
            raise UnsupportedError(
                f"model '{self._name}' is called by instance '{last.caller.instance}', and its"
                " every instance waits for that one:"
                f" {', '.join(sorted(other.instance for other in others))};"
                " the call would wait for ever"
            )

    def wait(self, request: InferenceRequest) -> Wait | None:
        """The edge of the wait-for graph from caller to instances; `None` unless it is certain."""
        last: NestedCall = request.call_chain[-1]
        return Wait(last, self._pool) if last.blocking and self._certain else None


def _may_expire(config: ModelConfig) -> bool:
    """Whether a request may time out in the queue."""
    batching = config.dynamic_batching
    if batching is None:
        return config.sequence_batching is not None
    policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
    return any(
        policy.default_timeout_microseconds or policy.allow_timeout_override
        for policy in policies
        if policy is not None
    )
