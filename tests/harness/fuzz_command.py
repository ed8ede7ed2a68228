"""The commands of fuzzers: as many inputs as one likes, what fails in a file, and their figures."""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

_EVERY = 100_000
"""Inputs between two lines, and two looks at memory."""
_OBJECTS, _MIB = 5000, 40
"""Allowed growth since the first look: caches fill, and memory fragments."""


class Fuzzer(Protocol):
    """What has been tried: the number of inputs, and their bytes."""

    inputs: int
    bytes: int


@dataclass(slots=True)
class FuzzRun:
    """One run of a fuzzer: how far it goes, and what it took."""

    seed: int
    inputs: int
    seconds: float
    _begun: float = field(default_factory=time.monotonic)

    def rounds(self, fuzzer: Fuzzer) -> Iterator[int]:
        """How many inputs to try next, until these are enough or the time is up."""
        while fuzzer.inputs < self.inputs and time.monotonic() - self._begun < self.seconds:
            yield min(_EVERY, self.inputs)

    def show(self, fuzzer: Fuzzer, what: str = "") -> None:
        """Print a line about what has been tried so far."""
        seconds = time.monotonic() - self._begun
        print(f"{fuzzer.inputs:>9} inputs in {seconds:.0f} s{what}", flush=True)

    def figures(self, fuzzer: Fuzzer) -> dict[str, Any]:
        """Those that all fuzzers have."""
        return {
            "inputs": fuzzer.inputs,
            "seconds": time.monotonic() - self._begun,
            "cpu_seconds": time.process_time(),
            "bytes": fuzzer.bytes,
        }


class MemoryGrowth:
    """Resident MiB, and objects that Python tracks, which must not grow with the inputs."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    @property
    def mib(self) -> list[float]:
        """At the first look, and now."""
        assert self._first is not None
        return [self._first[0], _memory()[0]]

    def look(self) -> str:
        """Both in words; raises `AssertionError` if one has grown since the first look."""
        memory, objects = _memory()
        self._first = self._first or (memory, objects)
        assert objects < self._first[1] + _OBJECTS, "objects grow"
        assert memory < self._first[0] + _MIB, "memory grows"
        return f"{memory:.0f} MiB, {objects} objects"


def _memory() -> tuple[float, int]:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages / 256, len(gc.get_objects())


def fuzz_command(description: str | None, fuzz: Callable[[FuzzRun], Mapping[str, Any]]) -> None:
    """Run a fuzzer as its command line says, and print its figures."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=Path, default=Path("fuzz-failure.txt"))
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    try:
        result = fuzz(FuzzRun(options.seed, options.inputs, options.seconds))
    except Exception as error:
        options.save.write_text("\n".join([repr(error), *getattr(error, "__notes__", [])]))
        raise
    print(json.dumps(result))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
