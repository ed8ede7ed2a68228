"""`MetricFamily` and `Metric`: a model's own Prometheus metrics (contract PY-34).

They are handles: the values are in the server, where the instances of a model share them. The
operations are those of `penstock.metrics.custom`.
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
from penstock_backends.python.pb_utils.arguments import Text, instance, real, text
from penstock_backends.python.pb_utils.exception import TritonModelException

_deletions: deque[Callable[[], object]] = deque()
"""Deletions of families that are not sent yet. A family can be garbage-collected at any moment,
even while a message is being sent, so its deletion is sent before the next operation."""


class MetricFamily:
    """Metrics of one name, kind and description, which exist as long as this object."""

    COUNTER: ClassVar[MetricKind] = MetricKind.COUNTER
    GAUGE: ClassVar[MetricKind] = MetricKind.GAUGE
    HISTOGRAM: ClassVar[MetricKind] = MetricKind.HISTOGRAM

    def __init__(self, name: Text, description: Text, kind: MetricKind) -> None:
        self._kind = kind_of(instance(kind, "kind", MetricKind))
        texts = text(name, "name"), text(description, "description")
        failed = "Error when creating MetricFamily"
        self._handle: int = _send(failed, "family", *texts, int(kind))
        delete = partial(runtime.current().metric, "delete", self._handle)
        weakref.finalize(self, _deletions.append, delete).atexit = False

    def Metric(  # noqa: N802 (the name is Triton's)
        self,
        labels: Mapping[str, Text] | Mapping[bytes, Text] | None = None,
        buckets: Sequence[float] | None = None,
    ) -> Metric:
        """The metric with these labels; histograms need the upper bounds of their buckets."""
        if not isinstance(labels, Mapping | None):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        bounds = self._bounds(buckets)
        failed = "Error when creating Metric"
        named = {text(k, "labels"): text(v, "labels") for k, v in (labels or {}).items()}
        handle = _send(failed, "create", self._handle, named, bounds)
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
        return None if buckets is None else [real(bound, "buckets") for bound in buckets]


class Metric:
    """One counter, gauge or histogram of a family. Created by `MetricFamily.Metric`."""

    __slots__ = ("_family", "_handle", "_kind")

    def __init__(self, family: MetricFamily, kind: MetricKind, handle: int) -> None:
        self._family = family  # kept, as its metrics are deleted with it
        self._kind = kind
        self._handle = handle

    def increment(self, value: float) -> None:
        """Add to a counter or gauge; a counter refuses negative amounts."""
        self._apply("Failed to increment metric value", "increment", real(value, "value"))

    def set(self, value: float) -> None:
        """Set a gauge."""
        self._apply("Failed to set metric value", "set", real(value, "value"))

    def observe(self, value: float) -> None:
        """Count a value in a histogram."""
        self._apply("Failed to observe metric value", "observe", real(value, "value"))

    def value(self) -> float:
        """The current value, over all instances of the model."""
        number: float = self._apply("Failed to get metric value", "value")
        return number

    def _apply(self, failed: str, operation: str, *number: float) -> Any:
        if reason := refusal(self._kind, operation, *number):
            raise TritonModelException(f"{failed}: {reason}")
        return _send(failed, operation, self._handle, *number)


def _send(failed: str, operation: str, *arguments: Any) -> Any:
    with suppress(IndexError):  # another thread may have sent it
        while _deletions:
            _deletions.popleft()()
    try:
        return runtime.current().metric(operation, *arguments)
    except TritonModelException as error:
        raise TritonModelException(f"{failed}: {error}") from error
