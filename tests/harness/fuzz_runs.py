"""Runs of a fuzzer from the command line: as many inputs as one likes, and what broke is kept."""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

_EVERY = 100_000
"""Inputs between two looks at memory."""
_OBJECTS, _MIB = 5000, 40
"""Allowed growth since the first measurement: caches fill, and memory fragments."""


class Counted(Protocol):
    """A fuzzer, as far as its counts of inputs and of their bytes go."""

    inputs: int
    bytes: int


class Progress:
    """How far a run is: until its inputs or its seconds are used up. Fails where memory grows."""

    def __init__(self, inputs: int, seconds: float, seed: int) -> None:
        self.seed = seed
        self._inputs = inputs
        self._seconds = seconds
        self._start = time.monotonic()
        self._first: tuple[float, int] | None = None

    def next(self, fuzzer: Counted) -> int:
        """How many inputs are to be tried next; 0 at the end."""
        if fuzzer.inputs >= self._inputs or time.monotonic() - self._start >= self._seconds:
            return 0
        return min(_EVERY, self._inputs)

    def show(self, fuzzer: Counted, *counts: str) -> None:
        """Print a line, and look at memory."""
        memory, objects = _memory()
        first_memory, first_objects = self._first = self._first or (memory, objects)
        shown = [f"{fuzzer.inputs:>9} inputs in {time.monotonic() - self._start:.0f} s"]
        shown += [f"CPU {time.process_time():.0f} s", *counts]
        print(*shown, f"{memory:.0f} MiB", f"{objects} objects", sep=", ", flush=True)
        assert objects < first_objects + _OBJECTS, "objects grow"
        assert memory < first_memory + _MIB, "memory grows"

    def figures(self, fuzzer: Counted, **more: Any) -> dict[str, Any]:
        """What to write about the run."""
        return {
            "inputs": fuzzer.inputs,
            "seconds": time.monotonic() - self._start,
            "cpu_seconds": time.process_time(),
            "bytes": fuzzer.bytes,
            "memory_mib": [self._first and self._first[0], _memory()[0]],
            **more,
        }


def _memory() -> tuple[float, int]:
    """Resident MiB, and objects that are tracked."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages / 256, len(gc.get_objects())


def main(description: str | None, fuzz: Callable[[Progress], dict[str, Any]]) -> None:
    """Run a fuzzer as the arguments say; what broke it is written to a file."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=Path, default=Path("fuzz-failure.txt"))
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    try:
        result = fuzz(Progress(options.inputs, options.seconds, options.seed))
    except Exception as error:
        options.save.write_text("\n".join([repr(error), *getattr(error, "__notes__", [])]))
        raise
    print(json.dumps(result))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
