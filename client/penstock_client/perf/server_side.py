"""Counters of the server while a load is on: its statistics, its metrics, its CPU time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock_client.perf.errors import PerfError
from penstock_client.perf.server import Server
from penstock_client.reading.address import Address
from penstock_client.reading.counters import ModelCounters, ModelKey
from penstock_client.reading.fetch import FetchError, fetch_page
from penstock_client.reading.growth import Growth, growth, mean
from penstock_client.reading.kserve import model_statistics
from penstock_client.reading.metrics_page import MetricsPage

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The server's counters at a time; `cpu` is the CPU time of its processes, in seconds."""

    at: float
    models: Mapping[ModelKey, ModelCounters] = field(default_factory=dict)
    page: MetricsPage | None = None
    cpu: float | None = None
    machine: tuple[float, float] = (0.0, 0.0)  # CPU time of this machine: busy, all


@dataclass(frozen=True, slots=True)
class Observer:
    """Reads one server's counters; what cannot be read is left out."""

    server: Server | None = None
    metrics: Address | None = None
    pid: int = 0

    def snapshot(self) -> Snapshot:
        """The counters as they are now."""
        return Snapshot(
            time.perf_counter(),
            self._models(),
            self._page(),
            self._cpu(),
            _machine(),
        )

    def _models(self) -> Mapping[ModelKey, ModelCounters]:
        if self.server is None:
            return {}
        try:
            return model_statistics(self.server.statistics())[0]
        except (PerfError, KeyError, TypeError, ValueError):
            return {}

    def _page(self) -> MetricsPage | None:
        if self.metrics is None:
            return None
        try:
            return fetch_page(self.metrics)
        except FetchError:
            return None

    def _cpu(self) -> float | None:
        if not self.pid:
            return None
        pids = processes_below(self.pid)
        try:
            used = _cpu_seconds(next(pids))
        except OSError:
            return None
        for pid in pids:
            with suppress(OSError):  # it has ended meanwhile
                used += _cpu_seconds(pid)
        return used


def server_side(before: Snapshot, after: Snapshot, requests: int) -> dict[str, Any]:
    """The growth between two snapshots: statistics by model, CPU time; and gauges."""
    seconds = after.at - before.at
    found: dict[str, Any] = {"models": _models(before.models, after.models, seconds)}
    if before.cpu is not None and after.cpu is not None:
        used = after.cpu - before.cpu
        found["cpu_cores"] = used / seconds
        found["cpu_us_per_request"] = used / requests * 1e6 if requests else None
    if after.page is not None:
        found["metrics"] = _page(before.page or MetricsPage(), after.page, seconds)
    return found


def machine_busy(before: Snapshot, after: Snapshot) -> float:
    """The share of this machine's CPU time that was used, 0 to 1."""
    busy, total = (now - then for then, now in zip(before.machine, after.machine, strict=True))
    return busy / total if total > 0 else 0.0


def _models(
    before: Mapping[ModelKey, ModelCounters],
    after: Mapping[ModelKey, ModelCounters],
    seconds: float,
) -> list[dict[str, Any]]:
    grown = {
        key: growth(before.get(key, ModelCounters()), counters, seconds)
        for key, counters in after.items()
    }
    return [
        _model(key, each)
        for key, each in sorted(grown.items())
        if each.success or each.inferences or any(each.failures.values())
    ]


def _model(key: ModelKey, grown: Growth) -> dict[str, Any]:
    times = grown.durations
    found: dict[str, Any] = {
        "model": key.name,
        "version": key.version,
        "requests": grown.success,
        "failed": sum(grown.failures.values()),
        "inferences": grown.inferences,
        "executions": grown.executions,
        "batch": mean(grown.inferences, grown.executions),
    }
    if times is None:
        return found
    parts = ("request", "queue", "compute_input", "compute_infer", "compute_output")
    for part in parts:
        average = mean(getattr(times, part), grown.success)
        found[f"{part}_us"] = None if average is None else average * 1e6
    return found


def _page(before: MetricsPage, after: MetricsPage, seconds: float) -> dict[str, Any]:
    machine = after.machine
    engines = {
        f"{key.name}/{key.version}": growth(
            before.models.get(key, ModelCounters()), counters, seconds
        ).engine
        for key, counters in after.models.items()
        if counters.engine
    }
    return {
        "cpu_utilization": machine.cpu,
        "memory_used_bytes": machine.memory_used,
        "gpus": [
            {
                "uuid": gpu.uuid,
                "utilization": gpu.utilization,
                "memory_used_bytes": gpu.memory_used,
                "memory_total_bytes": gpu.memory_total,
                "power_watts": gpu.power,
            }
            for gpu in machine.gpus
        ],
        "engines": {name: dict(counts) for name, counts in engines.items()},
    }


def _machine() -> tuple[float, float]:
    fields = [float(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]  # waiting for disks is idle, too
    return (sum(fields) - idle) / _TICKS, sum(fields) / _TICKS


def processes_below(root: int) -> Iterator[int]:
    """A process and all below it; of one that ends meanwhile, none."""
    yield root
    with suppress(OSError):
        for task in Path(f"/proc/{root}/task").iterdir():
            with suppress(OSError):
                for child in (task / "children").read_text().split():
                    yield from processes_below(int(child))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
