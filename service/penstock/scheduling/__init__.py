"""One file per way of scheduling. Schedulers decide in pure code and wait in a thin shell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from penstock.core.errors import InferenceError
from penstock.inflight.inference import Inference


class Instance(Protocol):
    """What a scheduler sees of an instance: something that executes batches.

    `serial` instances take one batch at a time. `available` turns false while the instance
    cannot work (its process died); `on_available` is called when it can again.
    """

    name: str
    serial: bool
    on_available: Callable[[], None] | None

    @property
    def available(self) -> bool: ...

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        """Start answering every inference of the batch.

        `done` is called once, when the next batch may come: perhaps before this returns. Raises
        only when the batch could not be begun; then it is not called.
        """


@runtime_checkable
class Resizable(Protocol):
    """A scheduler whose instances may change while it works."""

    def resize(self, instances: Sequence[Any]) -> None:
        """Use these from now on; others finish what they have."""


@runtime_checkable
class SequenceScheduler(Protocol):
    """A scheduler that knows sequences, of which later requests continue what earlier began."""

    @property
    def has_sequences(self) -> bool:
        """Whether any sequence is under way."""

    async def finished(self) -> None:
        """Wait until no sequence is under way."""

    async def vacated(self, instance: Instance) -> None:
        """Wait until an instance that is not to be used any more has no sequence."""


class Scheduler(Protocol):
    """Decides which requests an instance executes together, and when."""

    def schedule(self, inference: Inference) -> None:
        """Take a request; its answers come on its stream. Raises what admission refuses."""

    def abandon(self, error: InferenceError) -> None:
        """Fail every request that waits for an instance."""

    async def drain(self) -> None:
        """Wait until no execution runs any more."""
