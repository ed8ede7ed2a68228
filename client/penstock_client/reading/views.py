"""Answers of servers about themselves and their models, as frozen values, read from their JSON.

They are public and of any server, so they do not share classes with what this server keeps of its
own models, though some fields are the same. Of JSON, what is 0 or empty may be missing, and numbers
may be strings, as in Triton's JSON of gRPC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


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
    state: str = ""
    reason: str = ""


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


def server_of(told: Mapping[str, Any]) -> ServerMetadata:
    """The metadata of a server, from `/v2`."""
    extensions = tuple(told.get("extensions", ()))
    return ServerMetadata(str(told.get("name", "")), str(told.get("version", "")), extensions)


def metadata_of(told: Mapping[str, Any]) -> ModelMetadata:
    """The metadata of a model, from `/v2/models/NAME`."""
    return ModelMetadata(
        told["name"],
        tuple(told.get("versions", ())),
        told.get("platform", ""),
        tuple(_tensors(told.get("inputs", ()))),
        tuple(_tensors(told.get("outputs", ()))),
    )


def _tensors(told: Iterable[Mapping[str, Any]]) -> list[TensorMetadata]:
    return [TensorMetadata(each["name"], each["datatype"], tuple(each["shape"])) for each in told]


def entries_of(told: Iterable[Mapping[str, Any]]) -> list[ModelEntry]:
    """The lines of the repository's index, from `/v2/repository/index`."""
    names = ("version", "state", "reason")
    return [ModelEntry(each["name"], *(str(each.get(name, "")) for name in names)) for each in told]


def statistics_of(told: Mapping[str, Any]) -> ModelStatistics:
    """The counters of a model version, of which `/v2/models/stats` has a list."""
    stats = told.get("inference_stats", {})

    def number(name: str, part: str) -> int:
        return int(stats.get(name, {}).get(part, 0))

    return ModelStatistics(
        name=told["name"],
        version=str(told.get("version", "")),
        inferences=int(told.get("inference_count", 0)),
        executions=int(told.get("execution_count", 0)),
        succeeded=number("success", "count"),
        failed=number("fail", "count"),
        request_ns=number("success", "ns"),
        queue_ns=number("queue", "ns"),
        input_ns=number("compute_input", "ns"),
        infer_ns=number("compute_infer", "ns"),
        output_ns=number("compute_output", "ns"),
        cache_hits=number("cache_hit", "count"),
        cache_misses=number("cache_miss", "count"),
        last_inference_ms=int(told.get("last_inference", 0)),
    )
