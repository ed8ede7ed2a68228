"""The registry of models' custom metrics, in the server (contract ME-29 and ME-31).

A model creates a family, and metrics of it, one for each set of labels. Metrics with the same name
and labels are shared: by instances of one model, and by models that use the same names. A metric is
removed with the last instance that holds a handle of it.

Model processes send operations, which `CustomMetrics.apply` executes:

| operation   | arguments                          | answer                                 |
|-------------|------------------------------------|----------------------------------------|
| `family`    | name, description, kind            | the family's handle                    |
| `create`    | family, labels, buckets or None    | the metric's handle                    |
| `increment` | metric, amount                     | nothing                                |
| `set`       | metric, number                     | nothing                                |
| `observe`   | metric, number                     | nothing                                |
| `value`     | metric                             | the number                             |
| `delete`    | family                             | nothing; all metrics made of it go too |

`penstock.metrics.exposition.render` formats the families of `CustomMetrics.snapshot`.

Handles are numbers that are never reused. If `refusal` was checked before, `increment`, `set`,
`observe` and `delete` cannot fail, so a sender need not wait for their answer.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count, pairwise
from typing import Any

from penstock.core.errors import InvalidRequestError, UnsupportedError
from penstock.metrics.exposition import Family, Labels, MetricKind, Series

_CAN = {
    MetricKind.COUNTER: ("increment", "value"),
    MetricKind.GAUGE: ("increment", "set", "value"),
    MetricKind.HISTOGRAM: ("observe",),
}


def kind_of(number: int) -> MetricKind:
    """The kind of a custom metric; raises `ValueError` for any other number."""
    kind = MetricKind(number)
    if kind not in _CAN:
        raise ValueError(f"models cannot make metrics of kind {kind.name}")
    return kind


def refusal(kind: MetricKind, operation: str, number: float = 0.0) -> str | None:
    """The error text if a metric of this kind does not support the operation; `None` if it does."""
    if operation not in _CAN[kind]:
        return f"TRITONSERVER_METRIC_KIND_{kind.name} does not support {operation.capitalize()}"
    if kind is MetricKind.COUNTER and number < 0:
        return (
            "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by"
            " non-negative values."
        )
    return None


class CustomMetrics:
    """A registry of custom metrics by owner: one model instance from its start to its end.

    `reserved` are the names of the server's own metrics, which models cannot use. To be used on
    the event loop only; never blocks.
    """

    def __init__(self, reserved: Container[str] = ()) -> None:
        self._reserved = reserved
        self._families: dict[str, _SharedFamily] = {}
        self._owners: dict[str, _Owner] = {}
        self._numbers = count(1)
        self._operations: dict[str, Callable[..., Any]] = {
            "family": self._family,
            "create": self._create,
            "increment": self._increment,
            "set": self._set,
            "observe": self._observe,
            "value": self._value,
            "delete": self._delete,
        }

    def apply(self, owner: str, operation: str, arguments: Sequence[Any]) -> Any:
        """Execute an operation of an owner; raises an `InferenceError` if it is refused."""
        act = self._operations.get(operation)
        if act is None:
            raise UnsupportedError(f"unknown metric operation '{operation}'")
        return act(self._owners.setdefault(owner, _Owner()), *arguments)

    def remove(self, owner: str) -> None:
        """Release all handles of an owner that has ended."""
        gone = self._owners.pop(owner, _Owner())
        for handle in list(gone.families):
            self._delete(gone, handle)

    def snapshot(self) -> list[Family]:
        """Every family that has metrics, with their current values."""
        return [family.snapshot() for family in self._families.values() if family.metrics]

    # -- operations -------------------------------------------------------------------------------

    def _family(self, owner: _Owner, name: str, description: str, kind: int) -> int:
        family = self._families.get(name)
        if family is None:
            _check_name(name)
        if name in self._reserved or (family is not None and family.kind != kind):
            raise InvalidRequestError("Family name already exists with different type")
        if family is None:
            family = self._families[name] = _SharedFamily(name, str(description), kind_of(kind))
        family.holders += 1
        handle = next(self._numbers)
        owner.families[handle] = family, []
        return handle

    def _create(
        self,
        owner: _Owner,
        family: int,
        labels: Mapping[str, str],
        buckets: Sequence[float] | None,
    ) -> int:
        held = owner.families.get(family)
        if held is None:
            raise InvalidRequestError(_DELETED)
        made, handles = held
        metric = made.metric(labels, buckets)
        metric.holders += 1
        handle = next(self._numbers)
        owner.metrics[handle] = metric
        handles.append(handle)
        return handle

    def _increment(self, owner: _Owner, handle: int, amount: float) -> None:
        owner.metric(handle, "increment", _number(amount)).value += amount

    def _set(self, owner: _Owner, handle: int, number: float) -> None:
        owner.metric(handle, "set", _number(number)).value = number

    def _observe(self, owner: _Owner, handle: int, number: float) -> None:
        owner.metric(handle, "observe", _number(number)).observe(number)

    def _value(self, owner: _Owner, handle: int) -> float:
        return owner.metric(handle, "value").value

    def _delete(self, owner: _Owner, handle: int) -> None:
        held = owner.families.pop(handle, None)
        if held is None:
            return
        family, handles = held
        for metric in map(owner.metrics.pop, handles):
            family.release(metric)
        family.holders -= 1
        if not family.holders:
            del self._families[family.name]


class _SharedMetric:
    """One number or histogram, shared by the handles that `holders` counts."""

    __slots__ = ("_bounds", "_counts", "holders", "kind", "labels", "value")

    def __init__(self, kind: MetricKind, labels: Labels, bounds: Sequence[float]) -> None:
        self.kind = kind
        self.labels = labels
        self.value = 0.0
        self.holders = 0
        self._bounds = [*bounds, math.inf] if kind is MetricKind.HISTOGRAM else []
        self._counts = [0] * len(self._bounds)

    def observe(self, number: float) -> None:
        self.value += number
        self._counts[bisect_left(self._bounds, number)] += 1

    def snapshot(self) -> Series:
        buckets = zip(self._bounds, accumulate(self._counts), strict=True)
        return Series(self.labels, self.value, tuple(buckets))


class _SharedFamily:
    """The metrics of one name, by labels. Keeps the first description."""

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        self.name = name
        self.kind = kind
        self.holders = 0
        self.metrics: dict[Labels, _SharedMetric] = {}
        self._description = description

    def metric(self, labels: Mapping[str, str], buckets: Sequence[float] | None) -> _SharedMetric:
        """Get or create the metric with these labels; an existing one keeps its buckets."""
        _check_labels(labels, self.kind)
        bounds = _checked_bounds(self.kind, buckets)
        key = tuple(sorted(labels.items()))
        found = self.metrics.get(key)
        if found is None:
            found = self.metrics[key] = _SharedMetric(self.kind, key, bounds)
        return found

    def release(self, metric: _SharedMetric) -> None:
        """Release a handle; the metric is removed with its last one."""
        metric.holders -= 1
        if not metric.holders:
            del self.metrics[metric.labels]

    def snapshot(self) -> Family:
        series = tuple(metric.snapshot() for metric in self.metrics.values())
        return Family(self.name, self._description, self.kind, series)


@dataclass(slots=True)
class _Owner:
    """The handles of one owner: families, each with the handles of its metrics."""

    families: dict[int, tuple[_SharedFamily, list[int]]] = field(default_factory=dict)
    metrics: dict[int, _SharedMetric] = field(default_factory=dict)

    def metric(self, handle: int, operation: str, number: float = 0.0) -> _SharedMetric:
        """The metric of a handle; raises if it does not support the operation."""
        metric = self.metrics.get(handle)
        if metric is None:
            raise InvalidRequestError(_DELETED)
        if reason := refusal(metric.kind, operation, number):
            raise InvalidRequestError(reason)
        return metric


_DELETED = (
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The"
    " 'MetricFamily' object should be deleted AFTER its corresponding 'Metric' objects have been"
    " deleted."
)
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


def _number(value: object) -> float:
    """The value of a metric, which a model process has sent; anything else would spoil the page."""
    if isinstance(value, int | float):
        return value
    raise InvalidRequestError(f"the value of a metric must be a number, not {value!r}")


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"'{name}' cannot be the name of a metric family: use letters, digits, '_' and ':', "
            "beginning with no digit"
        )


def _check_labels(labels: Mapping[str, object], kind: MetricKind) -> None:
    for name, value in labels.items():
        taken = kind is MetricKind.HISTOGRAM and name == "le"
        if taken or not _LABEL.fullmatch(name):
            raise InvalidRequestError(
                f"'{name}' cannot be the name of a label: use letters, digits and '_', beginning "
                "with neither a digit nor '__', and not 'le' for a histogram"
            )
        if not isinstance(value, str):
            raise InvalidRequestError(f"label '{name}' must be a string, not {value!r}")


def _checked_bounds(kind: MetricKind, buckets: Sequence[float] | None) -> Sequence[float]:
    """The upper bounds without `inf`, which every histogram has."""
    if kind is not MetricKind.HISTOGRAM:
        return ()
    bounds = buckets or ()
    if not all(low < high for low, high in pairwise(bounds)) or any(map(math.isnan, bounds)):
        raise InvalidRequestError("Bucket Boundaries must be strictly sorted")
    return bounds[:-1] if bounds and bounds[-1] == math.inf else bounds
