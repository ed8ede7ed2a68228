"""What a server has counted, as values: of a model version, of a model process, of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class ModelKey(NamedTuple):
    """A version of a model."""

    name: str
    version: str


class ProcessKey(NamedTuple):
    """An instance of a model version, which runs in a process of its own."""

    model: str
    version: str
    instance: str


Buckets = Mapping[float, float]
"""The cumulative buckets of a histogram: upper bound to observations."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds that requests took since the model was loaded, in total and by phase."""

    request: float = 0.0
    queue: float = 0.0
    compute_input: float = 0.0
    compute_infer: float = 0.0
    compute_output: float = 0.0


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """Look-ups of the response cache."""

    hits: float = 0.0
    misses: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelCounters:
    """Counts of a model version since it was loaded; `None` where the source does not tell.

    `failures` are by reason, `cancelled` by phase. `pending` requests wait for an instance,
    `in_flight` ones are not answered in full. `engine` are the numbers that a backend reports about
    itself, by metric name; `histograms` and `quantiles` are distributions by metric name.
    """

    success: float = 0.0
    inferences: float = 0.0
    executions: float = 0.0
    failures: Mapping[str, float] = field(default_factory=dict)
    durations: Durations | None = None
    cache: CacheCounts | None = None
    pending: float | None = None
    in_flight: float | None = None
    cancelled: Mapping[str, float] = field(default_factory=dict)
    engine: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Buckets] = field(default_factory=dict)
    quantiles: Mapping[str, Mapping[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """Executions of one batch size, and seconds of their phases."""

    executions: float = 0.0
    compute_input: float = 0.0
    compute_infer: float = 0.0
    compute_output: float = 0.0


@dataclass(frozen=True, slots=True)
class ProcessNumbers:
    """A model process: `memory` in bytes; `pid` and `memory` are `None` while it is down."""

    up: bool
    pid: int | None
    memory: float | None
    restarts: float


@dataclass(frozen=True, slots=True)
class GpuNumbers:
    """A GPU: `utilization` 0 to 1, memory in bytes, power in watts."""

    uuid: str
    utilization: float | None
    memory_used: float | None
    memory_total: float | None
    power: float | None


@dataclass(frozen=True, slots=True)
class Machine:
    """CPU and memory of the whole machine: `cpu` 0 to 1, memory in bytes."""

    cpu: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    gpus: tuple[GpuNumbers, ...] = ()
