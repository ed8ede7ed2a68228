"""As many inputs as one likes; what broke the connection is written to a file.

python -m http1.fuzzing --inputs 1000000 [--seed 1] [--json FILE]    (with tests/ on PYTHONPATH)
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path
from typing import Any

from http1.fuzzing.fuzzer import Fuzzer

_EVERY = 100_000
"""Inputs between two looks at memory."""
_OBJECTS, _MIB = 5000, 40
"""Allowed growth since the first measurement: caches fill, and memory fragments."""


def _memory() -> tuple[float, int]:
    """Resident MiB, and objects that are tracked."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages / 256, len(gc.get_objects())


def _fuzz(options: argparse.Namespace) -> dict[str, Any]:
    fuzzer = Fuzzer(options.seed)
    start, first = time.monotonic(), (0.0, 0)
    while fuzzer.inputs < options.inputs and time.monotonic() - start < options.seconds:
        fuzzer.run(min(_EVERY, options.inputs))
        memory, objects = _memory()
        first = first if first[1] else (memory, objects)
        print(
            f"{fuzzer.inputs:>9} inputs in {time.monotonic() - start:.0f} s, "
            f"{fuzzer.connections} connections, {fuzzer.answers} answers, "
            f"{memory:.0f} MiB, {objects} objects",
            flush=True,
        )
        assert objects < first[1] + _OBJECTS, "objects grow"
        assert memory < first[0] + _MIB, "memory grows"
    return {
        "inputs": fuzzer.inputs,
        "seconds": time.monotonic() - start,
        "cpu_seconds": time.process_time(),
        "bytes": fuzzer.bytes,
        "connections": fuzzer.connections,
        "answers": fuzzer.answers,
        "compared_with_h11": fuzzer.compared,
        "memory_mib": [first[0], _memory()[0]],
        "ends": fuzzer.ends,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=Path, default=Path("fuzz-failure.txt"))
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    try:
        result = _fuzz(options)
    except Exception as error:
        options.save.write_text("\n".join([repr(error), *getattr(error, "__notes__", [])]))
        raise
    print(json.dumps(result))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
