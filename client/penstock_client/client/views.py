"""Answers of servers about themselves and their models, as frozen values.

They are public and of any server, so they do not share classes with what this server keeps of its
own models, though some fields are the same.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    """Name, version and protocol extensions of a server."""

    name: str
    version: str
    extensions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """Name, datatype and shape of a tensor; -1 is any length."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """Tensors and versions of a model; shapes include the batch dimension where it batches."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A line of the repository's index; version and state are empty for what was never loaded."""

    name: str
    version: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    """Counters of a model version since its load; durations are nanoseconds in total."""

    name: str
    version: str
    inferences: int
    executions: int
    succeeded: int
    failed: int
    request_ns: int
    queue_ns: int
    input_ns: int
    infer_ns: int
    output_ns: int
    cache_hits: int
    cache_misses: int
    last_inference_ms: int
