"""CPU and memory usage of the machine, read from `/proc`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_RESIDENT = 1  # the field of /proc/<pid>/statm, in pages
_IDLE = slice(3, 5)  # idle and waiting for input or output, in /proc/stat's order


class MachineUsage:
    """Reads `/proc`; values that cannot be read are 0.

    A value is read again once it is `interval` seconds old (`--metrics-interval-ms`). CPU
    utilization is an average since its last reading, so frequent scrapes do not measure noise.
    """

    def __init__(
        self,
        interval: float = 2.0,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval = interval
        self._proc = proc
        self._clock = clock
        self._since = clock()
        self._ticks = self._read_ticks()
        self._utilization = 0.0
        self._memory = (0, 0)
        self._memory_since = float("-inf")

    def utilization(self) -> float:
        """The fraction of CPU time in use, 0.0 to 1.0."""
        now = self._clock()
        if now - self._since >= self._interval:
            busy, total = self._read_ticks()
            former_busy, former_total = self._ticks
            if total > former_total:
                self._utilization = (busy - former_busy) / (total - former_total)
            self._since, self._ticks = now, (busy, total)
        return self._utilization

    def memory(self) -> tuple[int, int]:
        """Memory in use and in total, in bytes."""
        if self._clock() - self._memory_since >= self._interval:
            self._memory, self._memory_since = self._read_memory(), self._clock()
        return self._memory

    def _read_memory(self) -> tuple[int, int]:
        sizes = dict(line.split(":", 1) for line in self._read("meminfo").splitlines())
        total, available = (_bytes(sizes.get(key, "")) for key in ("MemTotal", "MemAvailable"))
        return total - available, total

    def _read_ticks(self) -> tuple[int, int]:
        """Busy ticks and all ticks of all CPUs since boot."""
        # Guest time, behind the first eight fields, is already part of user time.
        ticks = [int(word) for word in self._read("stat").partition("\n")[0].split()[1:9]]
        return sum(ticks) - sum(ticks[_IDLE]), sum(ticks)

    def _read(self, name: str) -> str:
        try:
            return (self._proc / name).read_text()
        except OSError:
            return ""


def _bytes(size: str) -> int:
    """The bytes of a size such as `  16384 kB`."""
    number = size.partition("kB")[0].strip()
    return int(number) * 1024 if number else 0


def resident_bytes(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Bytes of the process that are in memory; `None` if it is gone."""
    try:
        pages = (proc / str(pid) / "statm").read_text().split()[_RESIDENT]
    except (OSError, IndexError):
        return None
    return int(pages) * _PAGE
