"""What a server holds, seen from outside: nothing of it may grow with the requests it has had.

Reads the metrics page and `/proc`, so it works on any running server of ours, also in load tests.
"""

from __future__ import annotations

import os
import re
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SAMPLE = re.compile(r"^(\w+)(?:\{.*\})? (\S+)$", re.MULTILINE)
_SHARED = ("/memfd:penstock", "/dev/shm/")

_BUSY = (
    "requests",
    "waiting requests",
    "running sequences",
    "waiting sequences",
    "KV cache",
    "blocks of shared memory",
)
_LASTING = "tasks", "processes", "threads", "descriptors", "shared-memory maps"

Holdings = Mapping[str, float]
"""How much of what; requests and sequences at rest are 0."""


@dataclass(frozen=True, slots=True)
class LeakChecker:
    """Watches the server with this process id and metrics page."""

    pid: int
    metrics: str

    def holdings(self) -> Holdings:
        """What the server and its model processes hold now."""
        page = self._page()
        family = [self.pid, *_below(self.pid)]
        return {
            "requests": page["penstock_in_flight_requests"],
            "waiting requests": page["nv_inference_pending_request_count"],
            "running sequences": page["penstock_llm_running_requests"],
            "waiting sequences": page["penstock_llm_waiting_requests"],
            "KV cache": page["penstock_llm_kv_cache_usage"],
            "blocks of shared memory": page["penstock_shared_memory_blocks"],
            "tasks": page["penstock_event_loop_tasks"],
            "processes": len(family),
            "threads": sum(_entries(pid, "task") for pid in family),
            "descriptors": sum(_entries(pid, "fd") for pid in family),
            "shared-memory maps": sum(_shared_maps(pid) for pid in family),
        }

    def at_rest(self, timeout: float = 20.0) -> Holdings:
        """What the server holds once nothing is asked of it; fails when that time does not come."""
        nothing = dict.fromkeys(_BUSY, 0.0)
        leaks = self.leaks(nothing | dict.fromkeys(_LASTING, float("inf")), timeout)
        assert not leaks, f"not at rest: {leaks}"
        return self.holdings()

    def leaks(self, before: Holdings, timeout: float = 20.0) -> Mapping[str, tuple[float, float]]:
        """What is more than `before`, and stays so for `timeout` seconds."""
        end = time.monotonic() + timeout
        while True:
            now = self.holdings()
            grown = {name: (before[name], now[name]) for name in now if now[name] > before[name]}
            if not grown or time.monotonic() > end:
                return grown
            time.sleep(0.2)

    def _page(self) -> Mapping[str, float]:
        """Every metric, summed over its labels; 0 for those that nobody has."""
        with urllib.request.urlopen(self.metrics, timeout=60) as answer:
            text = answer.read().decode()
        sums = _Zero()
        for name, value in _SAMPLE.findall(text):
            sums[name] = sums[name] + float(value)
        return sums


class _Zero(dict[str, float]):
    def __missing__(self, _: str) -> float:
        return 0.0


def _below(root: int) -> Iterator[int]:
    for task in Path(f"/proc/{root}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # of a thread that has ended
            for child in map(int, task.read_text().split()):
                yield child
                yield from _below(child)


def _entries(pid: int, kind: str) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/{kind}"))
    except FileNotFoundError:  # it has ended meanwhile
        return 0


def _shared_maps(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(1 for line in lines if any(name in line for name in _SHARED))
