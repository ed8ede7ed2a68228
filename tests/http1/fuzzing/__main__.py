"""As many inputs as one likes; what broke the connection is written to a file.

python -m http1.fuzzing --inputs 1000000 [--seed 1] [--json FILE]    (with tests/ on PYTHONPATH)
"""

from __future__ import annotations

from typing import Any

from harness.fuzz_command import FuzzRun, MemoryGrowth, fuzz_command
from http1.fuzzing.fuzzer import Fuzzer


def _fuzz(run: FuzzRun) -> dict[str, Any]:
    fuzzer, growth = Fuzzer(run.seed), MemoryGrowth()
    for inputs in run.rounds(fuzzer):
        fuzzer.run(inputs)
        counted = f"{fuzzer.connections} connections, {fuzzer.answers} answers"
        run.show(fuzzer, f", {counted}, {growth.look()}")
    return run.figures(fuzzer) | {
        "connections": fuzzer.connections,
        "answers": fuzzer.answers,
        "compared_with_h11": fuzzer.compared,
        "memory_mib": growth.mib,
        "ends": fuzzer.ends,
    }


if __name__ == "__main__":
    fuzz_command(__doc__, _fuzz)
