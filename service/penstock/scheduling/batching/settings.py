"""`BatcherSettings`: the settings of a dynamic batcher, computed when its model is loaded."""

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
    """The default signature, without a model configuration: names and shapes of all inputs."""
    return frozenset((name, tensor.shape[1:]) for name, tensor in request.inputs.items())


@dataclass(frozen=True, slots=True)
class BatcherSettings:
    """Batch sizes and delay, queue policies, compatibility of requests, and response ordering.

    `gather` is the delay of `Gathering`, as a share of the last execution's time.
    """

    policy: BatchPolicy
    levels: PriorityLevels = field(default_factory=PriorityLevels)
    signature: Signature = signature
    preserve_ordering: bool = False
    gather: float = 0.0

    @classmethod
    def from_config(cls, config: ModelConfig) -> BatcherSettings:
        """Convert a complete configuration; raises `ConfigError` for invalid parameters."""
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
