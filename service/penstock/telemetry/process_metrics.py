"""Metrics of model processes: whether each is up, its id, memory and restarts.

Triton has no metrics of these names; its stub processes are found with `ps` only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.metrics.exposition import Family, MetricKind, Series
from penstock.models.serving.answers import InstanceProcess

_PAGE = os.sysconf("SC_PAGE_SIZE")
_RESIDENT = 1  # the field of /proc/<pid>/statm, in pages


def process_families(
    processes: Iterable[InstanceProcess], proc: Path = Path("/proc")
) -> Iterator[Family]:
    """The families of the model processes, read now; none where there are no such processes.

    A process that is down has no id and no memory: those series are left out.
    """
    found = list(processes)
    serving = [(one, one.pid) for one in found if one.pid is not None]
    sizes = ((one, resident_bytes(pid, proc)) for one, pid in serving)
    yield from (
        _family(
            "up",
            "Whether the process of the instance runs: 0 until it is started again",
            ((one, int(one.pid is not None)) for one in found),
        ),
        _family("pid", "Process id of the instance's process", serving),
        _family(
            "resident_memory_bytes",
            "Resident memory of the instance's process, with the shared memory that it has touched",
            ((one, size) for one, size in sizes if size is not None),
        ),
        _family(
            "restarts_total",
            "Processes of the instance that were started after the first",
            ((one, one.restarts) for one in found),
            MetricKind.COUNTER,
        ),
    )


def _family(
    name: str,
    text: str,
    values: Iterable[tuple[InstanceProcess, int]],
    kind: MetricKind = MetricKind.GAUGE,
) -> Family:
    series = (Series(_labels(one), value) for one, value in values)
    return Family(f"penstock_model_process_{name}", text, kind, series)


def resident_bytes(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Bytes of the process that are in memory; `None` if it is gone."""
    try:
        pages = (proc / str(pid) / "statm").read_text().split()[_RESIDENT]
    except (OSError, IndexError):
        return None
    return int(pages) * _PAGE


def _labels(one: InstanceProcess) -> tuple[tuple[str, str], ...]:
    return (("model", one.model), ("model_instance", one.instance), ("version", one.version))
