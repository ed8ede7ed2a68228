"""As many inputs as one likes; what broke the connection is written to a file.

python -m http1.fuzzing --inputs 1000000 [--seed 1] [--json FILE]    (with tests/ on PYTHONPATH)
"""

from __future__ import annotations

from typing import Any

from harness.fuzz_runs import Progress, main
from http1.fuzzing.fuzzer import Fuzzer


def _fuzz(progress: Progress) -> dict[str, Any]:
    fuzzer = Fuzzer(progress.seed)
    while count := progress.next(fuzzer):
        fuzzer.run(count)
        progress.show(fuzzer, f"{fuzzer.connections} connections", f"{fuzzer.answers} answers")
    return progress.figures(
        fuzzer,
        connections=fuzzer.connections,
        answers=fuzzer.answers,
        compared_with_h11=fuzzer.compared,
        ends=fuzzer.ends,
    )


if __name__ == "__main__":
    main(__doc__, _fuzz)
