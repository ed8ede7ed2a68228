"""Custom metrics of the host process, which every in-process server shows on its page."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.in_process.enums import MetricKind
from penstock.in_process.errors import translated
from penstock.metrics.custom import CustomMetrics
from penstock.metrics.exposition import Family
from penstock.telemetry.metrics import OwnNames

_OWNER = "host"


class _HostMetrics:
    """The registry, for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._metrics = CustomMetrics(OwnNames())

    def apply(self, operation: str, *arguments: Any) -> Any:
        with self._lock, translated():
            return self._metrics.apply(_OWNER, operation, arguments)

    def snapshot(self) -> Sequence[Family]:
        with self._lock:
            return self._metrics.snapshot()


_HOST = _HostMetrics()


class MetricsOfAll(CustomMetrics):
    """The custom metrics of a server's models, and behind them those of the host process."""

    def snapshot(self) -> list[Family]:
        """Every family that has metrics; of two with one name that of the models."""
        own = super().snapshot()
        names = {family.name for family in own}
        return own + [family for family in _HOST.snapshot() if family.name not in names]


class MetricFamily:
    """Metrics of one name and kind; they are removed with it."""

    def __init__(self, kind: MetricKind, name: str, description: str) -> None:
        self.kind = MetricKind(kind)
        self._handle = _HOST.apply("family", name, description, int(kind))
        weakref.finalize(self, _HOST.apply, "delete", self._handle)

    def _create(self, labels: Mapping[str, str]) -> int:
        handle: int = _HOST.apply("create", self._handle, dict(labels), None)
        return handle


class Metric:
    """A number of a family, for one set of labels."""

    def __init__(self, family: MetricFamily, labels: Mapping[str, str] | None = None) -> None:
        self._family = family
        self._handle = family._create(labels or {})

    @property
    def kind(self) -> MetricKind:
        """The kind of its family."""
        return self._family.kind

    @property
    def value(self) -> float:
        """The number now."""
        number: float = _HOST.apply("value", self._handle)
        return number

    def increment(self, value: float) -> None:
        """Add to the number; counters only grow."""
        _HOST.apply("increment", self._handle, value)

    def set_value(self, value: float) -> None:
        """Set the number of a gauge."""
        _HOST.apply("set", self._handle, value)
