"""`MetricFamily` and `Metric`: numbers of a model's own on the metrics page (contract PY-34).

They are handles; the numbers live in the server, where instances of a model share them. What is
said to the server is the vocabulary of `penstock.metrics.custom`.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from penstock.metrics.custom import kind_of, refusal
from penstock.metrics.exposition import MetricKind
from penstock_backends.python.pb_utils import runtime
from penstock_backends.python.pb_utils.exception import TritonModelException

_unsaid: deque[Callable[[], object]] = deque()
"""Ends of families that the server does not know of yet. An object can be collected at any moment,
also while something is being sent, so its end is told with the next operation."""


class MetricFamily:
    """Metrics of one name, kind and description; it and its metrics end with this object."""

    COUNTER: ClassVar[MetricKind] = MetricKind.COUNTER
    GAUGE: ClassVar[MetricKind] = MetricKind.GAUGE
    HISTOGRAM: ClassVar[MetricKind] = MetricKind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        self._kind = kind_of(kind)
        failed = "Error when creating MetricFamily"
        self._handle: int = _ask(failed, "family", name, description, int(kind))
        end = partial(runtime.current().metric, "delete", self._handle)
        weakref.finalize(self, _unsaid.append, end).atexit = False

    def Metric(  # noqa: N802 (the name is Triton's)
        self, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> Metric:
        """The metric with these labels; histograms need the upper bounds of their buckets."""
        if not isinstance(labels, Mapping | None):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        bounds = self._bounds(buckets)
        failed = "Error when creating Metric"
        handle = _ask(failed, "create", self._handle, dict(labels or {}), bounds)
        return Metric(self, self._kind, handle)

    def _bounds(self, buckets: Sequence[float] | None) -> list[float] | None:
        problem = None
        if buckets is None:
            if self._kind is MetricKind.HISTOGRAM:
                problem = "Missing required buckets."
        elif self._kind is not MetricKind.HISTOGRAM:
            problem = "Unexpected buckets found."
        elif not isinstance(buckets, list | tuple):
            problem = "Buckets must be a list."
        if problem:
            raise TritonModelException(f"Failed to create metric. {problem}")
        return None if buckets is None else [float(bound) for bound in buckets]


class Metric:
    """One number, or one histogram, of a family. Made by `MetricFamily.Metric`."""

    __slots__ = ("_family", "_handle", "_kind")

    def __init__(self, family: MetricFamily, kind: MetricKind, handle: int) -> None:
        self._family = family  # which lives as long as its metrics do
        self._kind = kind
        self._handle = handle

    def increment(self, value: float) -> None:
        """Add to a counter or gauge; a counter takes no negative amounts."""
        self._act("Failed to increment metric value", "increment", float(value))

    def set(self, value: float) -> None:
        """Set a gauge."""
        self._act("Failed to set metric value", "set", float(value))

    def observe(self, value: float) -> None:
        """Count a value in a histogram."""
        self._act("Failed to observe metric value", "observe", float(value))

    def value(self) -> float:
        """The number now, with what other instances have added."""
        number: float = self._act("Failed to get metric value", "value")
        return number

    def _act(self, failed: str, operation: str, *number: float) -> Any:
        if reason := refusal(self._kind, operation, *number):
            raise TritonModelException(f"{failed}: {reason}")
        return _ask(failed, operation, self._handle, *number)


def _ask(failed: str, operation: str, *arguments: Any) -> Any:
    with suppress(IndexError):  # another thread may have said it
        while _unsaid:
            _unsaid.popleft()()
    try:
        return runtime.current().metric(operation, *arguments)
    except TritonModelException as error:
        raise TritonModelException(f"{failed}: {error}") from error
