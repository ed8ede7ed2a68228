"""Memory, descriptors and processes of the server over time, and what it leaves behind."""

from __future__ import annotations

import os
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sample:
    """One look; memory in MiB, `descriptors` are those of the server's first process."""

    seconds: float
    server_memory: float
    tree_memory: float
    descriptors: int
    tree_descriptors: int
    threads: int
    processes: int
    shared_objects: int


@dataclass(slots=True)
class Watch:
    """Samples of a server's process and all below it."""

    pid: int
    begun: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    seen: set[tuple[int, str]] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    files: Counter[str] = field(default_factory=Counter)

    def look(self) -> Sample:
        """The server as it is now."""
        family = [self.pid, *below(self.pid)]
        shared = set[str]().union(*map(_shared_objects, family))
        self.seen.update((pid, started(pid)) for pid in family)
        self.shared.update(shared)
        return Sample(
            time.monotonic() - self.begun,
            memory(self.pid),
            sum(map(memory, family)),
            _entries(self.pid, "fd"),
            sum(_entries(pid, "fd") for pid in family),
            sum(_entries(pid, "task") for pid in family),
            len(family),
            len(shared),
        )

    def has(self, pid: int) -> bool:
        """Whether this is a process below the server's, and not another that got its number."""
        return pid in below(self.pid) and alive(pid)

    def sample(self) -> None:
        self.samples.append(self.look())

    def slope(self) -> float:
        """MiB an hour that the server's memory grows, over the second half of the samples.

        It is the median of the slopes between any two of them (Theil and Sen), which peaks of
        large requests do not move.
        """
        half = self.samples[len(self.samples) // 2 :]
        slopes = [
            (b.server_memory - a.server_memory) / (b.seconds - a.seconds) * 3600
            for a, b in combinations(half, 2)
        ]
        return statistics.median(slopes) if slopes else 0.0

    def left(self) -> list[str]:
        """Processes and shared memory that are there still, after the server has ended."""
        processes = [f"process {pid}" for pid in self.living()]
        return processes + sorted(path for path in self.shared if Path(path).exists())

    def living(self) -> list[int]:
        """The processes that were seen and run still."""
        return [pid for pid, since in sorted(self.seen) if alive(pid) and started(pid) == since]

    def more_files(self) -> str:
        """Descriptors of the server's first process that are no part of `files`."""
        more = open_files(self.pid) - self.files
        return ", ".join(f"{count} of {kind}" for kind, count in sorted(more.items()))

    def as_rows(self) -> list[dict[str, float]]:
        return [asdict(sample) for sample in self.samples]


def settled(watch: Watch, before: Sample, timeout: float = 60.0) -> Sample:
    """The first look with no more processes, descriptors and objects than before, or the last."""
    end = time.monotonic() + timeout
    while True:
        now = watch.look()
        held = _held(now)
        if all(a <= b for a, b in zip(held, _held(before), strict=True)) or time.monotonic() > end:
            return now
        time.sleep(0.5)


def _held(sample: Sample) -> Sequence[int]:
    return sample.descriptors, sample.processes, sample.shared_objects


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def started(pid: int) -> str:
    """When a process began, in ticks of the clock: numbers of processes are used again."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def open_files(pid: int) -> Counter[str]:
    """The descriptors of a process by what they are; sockets by their addresses."""
    found: Counter[str] = Counter()
    sockets = _sockets(pid)
    for number in os.listdir(f"/proc/{pid}/fd"):
        with suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{number}")
            found[sockets.get(target) or re.sub(r"[0-9]+", "N", target)] += 1
    return found


def _sockets(pid: int) -> dict[str, str]:
    """Kinds and addresses of the sockets of a network, by their names in `fd`."""
    found = {}
    for name, inode, address in (("tcp", 9, slice(1, 4)), ("unix", 6, slice(7, 8))):
        lines = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        for row in map(str.split, lines):
            found[f"socket:[{row[inode]}]"] = f"{name} {' '.join(row[address])}".strip()
    return found


def below(root: int) -> Iterable[int]:
    """All processes below one."""
    for task in Path(f"/proc/{root}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in map(int, children):
            yield child
            yield from below(child)


def memory(pid: int) -> float:
    """Resident MiB of a process, without what it maps of shared memory."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def _shared_objects(pid: int) -> set[str]:
    """Files of `/dev/shm` that a process maps, apart from those of the soak's own clients."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return set()
    return {path for path in re.findall(r" (/dev/shm/\S+)", maps) if "/soak-" not in path}


def _entries(pid: int, kind: str) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/{kind}"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
