"""Interfaces of a model instance: its health, its lifetime, and the whole that a model sees."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

from penstock.core.call_chain import CallingInstance
from penstock.hosting.parent.process import ProcessState
from penstock.metrics.histogram import Histogram
from penstock.models.serving.answers import is_alike
from penstock.scheduling import Instance


class InstanceHealth(Protocol):
    """The health of an instance, for readiness checks and metrics.

    `alive` is false while the instance cannot work; it may be restarted, so requests may wait for
    it. `lost` is true once it is down for good; `on_lost` is called then. `process` is `None` where
    the instance is on a thread of the server.
    """

    on_lost: Callable[[], None] | None

    @property
    def alive(self) -> bool: ...

    @property
    def lost(self) -> bool: ...

    @property
    def why_unavailable(self) -> str: ...

    @property
    def process(self) -> ProcessState | None: ...

    async def healthy(self) -> bool: ...

    def metrics(self) -> Mapping[str, float]: ...

    def histograms(self) -> Mapping[str, Sequence[Any]]: ...


class InstanceLifetime(Protocol):
    """The start and the end of an instance.

    `start` raises what the backend raises. `answered` waits until every request given to the
    instance is answered; `stop` releases the model and cancels what is in flight.
    """

    async def start(self) -> None: ...

    async def answered(self) -> None: ...

    async def stop(self) -> None: ...


class InstanceControl(Protocol):
    """Commands of operators to the backend of an instance."""

    async def control(self, action: str, arguments: Mapping[str, Any]) -> Any:
        """Have the backend carry out a command; raises what it raises."""

    def shrink(self) -> None:
        """Free caches, as no request is there; what comes meanwhile waits."""


class ModelInstance(Instance, InstanceHealth, InstanceLifetime, InstanceControl, Protocol):
    """An instance of a model, on a thread of the server or in a process of its own.

    A `passive` one gets no requests. Instances of equal `signature` replace each other when a
    model is resized. `memory` identifies the state of its sequences: it becomes another object when
    that state is lost, and is `None` while the instance is not alive. `caller` identifies it in
    call chains as the sender of requests while it executes; `None` if it sends none.
    """

    passive: bool
    signature: Hashable

    @property
    def memory(self) -> object | None: ...

    @property
    def caller(self) -> CallingInstance | None: ...


def metrics_together(instances: Sequence[ModelInstance]) -> list[tuple[str, float]]:
    """The instances' metrics by name: their sums, of shares and what is alike the mean."""
    found: dict[str, list[float]] = {}
    for instance in instances:
        for name, value in instance.metrics().items():
            found.setdefault(name, []).append(value)
    return [
        (name, sum(values) / len(values) if is_alike(name) else sum(values))
        for name, values in found.items()
    ]


def histograms_together(instances: Sequence[ModelInstance]) -> list[tuple[str, Histogram]]:
    """The instances' histograms, added up by name."""
    states: dict[str, list[Sequence[Any]]] = {}
    for instance in instances:
        for name, state in instance.histograms().items():
            states.setdefault(name, []).append(state)
    return [(name, Histogram.merged(found)) for name, found in states.items()]
