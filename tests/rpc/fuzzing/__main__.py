"""As many messages as one likes; the one that was misunderstood is written to a file.

python -m rpc.fuzzing --inputs 1000000 [--seed 1] [--json FILE]    (with tests/ on PYTHONPATH)
"""

from __future__ import annotations

from typing import Any

from harness.fuzz_runs import Progress, main
from rpc.fuzzing.fuzzer import Fuzzer


def _fuzz(progress: Progress) -> dict[str, Any]:
    fuzzer = Fuzzer(progress.seed)
    while count := progress.next(fuzzer):
        fuzzer.run(count)
        progress.show(fuzzer)
    return progress.figures(fuzzer, outcomes=fuzzer.outcomes)


if __name__ == "__main__":
    main(__doc__, _fuzz)
