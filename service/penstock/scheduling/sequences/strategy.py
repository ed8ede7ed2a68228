"""What the two strategies have in common: how they reach the sequences of an instance."""

from __future__ import annotations

from typing import Protocol

from penstock.core.errors import InferenceError
from penstock.inflight.inference import Inference
from penstock.scheduling.sequences.live_sequence import LiveSequence


class Step:
    """One request of a sequence, since `since` on the loop's clock."""

    __slots__ = ("executed", "inference", "sequence", "since")

    def __init__(self, inference: Inference, sequence: LiveSequence[Step], since: float) -> None:
        self.inference = inference
        self.sequence = sequence
        self.since = since
        self.executed = False


class Source(Protocol):
    """Where a strategy gets the requests of sequences that are ready."""

    def prepare(self, sequence: LiveSequence[Step]) -> Inference:
        """The next request as the model shall see it; it stays where it is."""

    def issue(self, sequence: LiveSequence[Step]) -> Inference:
        """Take the request that was prepared; the instance will tell when it was executed."""


class Strategy(Protocol):
    """Batches the requests of the sequences that have a slot of one instance."""

    def offer(self, sequence: LiveSequence[Step]) -> None:
        """The sequence, which has a slot of this instance, is ready."""

    def abandon(self, error: InferenceError) -> None:
        """Fail the requests that were issued and wait for the instance."""

    async def drain(self) -> None:
        """Wait until the instance executes nothing any more."""
