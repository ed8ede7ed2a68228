"""Metadata, statistics and gauges of a loaded model, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.inflight.statistics import Statistics


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """Name, datatype and shape of a tensor; the batch dimension, if any, is -1."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """Tensors and platform of a served version, and all versions served (G-06)."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    """Name, version and counters of a served model version.

    `tags` are the configuration's labels for its metrics (C-31), `load_seconds` the
    duration of the load (M-19).
    """

    name: str
    version: str
    statistics: Statistics
    tags: Mapping[str, str] = field(default_factory=dict)
    load_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number that a backend reports about itself; a counter if `name` ends with `_total`."""

    name: str
    model: str
    version: str
    value: float
