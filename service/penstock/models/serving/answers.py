"""What a loaded model answers about itself: metadata, statistics and gauges, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.inflight.statistics import Statistics


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """A tensor as clients see it: with the batch dimension, as -1, where the model batches."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """A served model version, and which versions are served beside it (G-06)."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    """Name, version and counters of a served model version.

    `tags` are the configuration's labels for its metrics (C-31), `load_seconds` what it took to
    load (M-19).
    """

    name: str
    version: str
    statistics: Statistics
    tags: Mapping[str, str] = field(default_factory=dict)
    load_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number that an engine reports about itself, for the metrics page."""

    name: str
    model: str
    version: str
    value: float
