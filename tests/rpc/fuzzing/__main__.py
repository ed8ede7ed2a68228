"""As many messages as one likes; the one that was misunderstood is written to a file.

python -m rpc.fuzzing --inputs 1000000 [--seed 1] [--json FILE]    (with tests/ on PYTHONPATH)
"""

from __future__ import annotations

from typing import Any

from harness.fuzz_command import FuzzRun, fuzz_command
from rpc.fuzzing.fuzzer import Fuzzer


def _fuzz(run: FuzzRun) -> dict[str, Any]:
    fuzzer = Fuzzer(run.seed)
    for inputs in run.rounds(fuzzer):
        fuzzer.run(inputs)
        run.show(fuzzer)
    return run.figures(fuzzer) | {"outcomes": fuzzer.outcomes}


if __name__ == "__main__":
    fuzz_command(__doc__, _fuzz)
