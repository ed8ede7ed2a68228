"""Schedulers: queues of requests in front of a model's instances, and the interface to both.

They decide in pure code, without clock, task or lock, and wait in a thin shell around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from penstock.core.errors import InferenceError
from penstock.inflight.inference import Inference


class Instance(Protocol):
    """The interface of an instance to a scheduler: it executes batches.

    `serial` instances take one batch at a time. `available` turns false while the instance
    cannot work (its process died); `on_available` is called when it can again.
    """

    name: str
    serial: bool
    on_available: Callable[[], None] | None

    @property
    def available(self) -> bool: ...

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        """Start the execution of a batch; each inference is answered on its stream.

        `done` is called once, when the next batch may follow: perhaps before this returns. Raises
        only when the batch could not be started; then `done` is not called.
        """


@runtime_checkable
class Resizable(Protocol):
    """A scheduler whose instances can be replaced while it runs."""

    def resize(self, instances: Sequence[Any]) -> None:
        """Use these instances from now on; removed ones finish their executions."""


@runtime_checkable
class SequenceScheduler(Protocol):
    """A scheduler of sequences, whose requests belong together by a correlation id."""

    @property
    def has_sequences(self) -> bool:
        """Whether any sequence is live."""

    async def finished(self) -> None:
        """Wait until no sequence is live."""

    async def vacated(self, instance: Instance) -> None:
        """Wait until a removed instance has no sequence any more."""


class Scheduler(Protocol):
    """Decides which requests an instance executes together, and when."""

    def schedule(self, inference: Inference) -> None:
        """Queue a request, which is answered on its stream. Raises `InferenceError` if refused."""

    def abandon(self, error: InferenceError) -> None:
        """Fail every queued request with `error`."""

    async def drain(self) -> None:
        """Wait until no execution runs."""
