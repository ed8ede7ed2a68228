"""`BatcherSettings`: what a dynamic batcher must know of its model, found out at load time."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from penstock.core.config import DynamicBatching, ModelConfig
from penstock.core.request import InferenceRequest
from penstock.scheduling.batching.compatibility import Signature, signature_for
from penstock.scheduling.batching.forming import BatchPolicy
from penstock.scheduling.batching.gathering import gather_share
from penstock.scheduling.batching.length_batching import LengthBatching
from penstock.scheduling.batching.priority import PriorityLevels


def signature(request: InferenceRequest) -> Hashable:
    """What requests of one batch have in common when nothing is known of their model."""
    return frozenset((name, tensor.shape[1:]) for name, tensor in request.inputs.items())


@dataclass(frozen=True, slots=True)
class BatcherSettings:
    """Sizes and delay, queue policies, what may share a batch, and the order of responses.

    `gather` is the share of an execution's time that the next batch waits for more (`Gathering`).
    """

    policy: BatchPolicy
    levels: PriorityLevels = field(default_factory=PriorityLevels)
    signature: Signature = signature
    preserve_ordering: bool = False
    gather: float = 0.0

    @classmethod
    def from_config(cls, config: ModelConfig) -> BatcherSettings:
        """As a complete configuration says; raises `ConfigError` for unusable parameters."""
        batching = config.dynamic_batching or DynamicBatching()
        lengths = LengthBatching.from_config(config)
        policy = BatchPolicy(
            max_batch_size=config.max_batch_size,
            preferred=frozenset(batching.preferred_batch_size),
            max_queue_delay=batching.max_queue_delay,
            max_elements=lengths.max_elements,
            padded=lengths.padded,
            buckets=lengths.buckets,
        )
        levels, ordered = PriorityLevels.from_config(batching), batching.preserve_ordering
        return cls(policy, levels, signature_for(config), ordered, gather_share(config))
