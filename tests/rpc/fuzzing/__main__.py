"""As many messages as one likes; the one that was misunderstood is written to a file.

python -m rpc.fuzzing --inputs 1000000 [--seed 1] [--json FILE]    (with tests/ on PYTHONPATH)
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rpc.fuzzing.fuzzer import Fuzzer

_EVERY = 100_000
"""Inputs between two lines."""


def _fuzz(options: argparse.Namespace) -> dict[str, Any]:
    fuzzer, start = Fuzzer(options.seed), time.monotonic()
    while fuzzer.inputs < options.inputs and time.monotonic() - start < options.seconds:
        fuzzer.run(min(_EVERY, options.inputs))
        print(f"{fuzzer.inputs:>9} inputs in {time.monotonic() - start:.0f} s", flush=True)
    return {
        "inputs": fuzzer.inputs,
        "seconds": time.monotonic() - start,
        "cpu_seconds": time.process_time(),
        "bytes": fuzzer.bytes,
        "outcomes": fuzzer.outcomes,
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
