"""As many inputs as one likes; the one that escaped is written to a file.

python -m fuzz DOOR --inputs 1000000 [--seed 1] [--json FILE]    (with tests/ on PYTHONPATH)
python -m fuzz DOOR --guided FOLDER [libFuzzer's options]        with atheris installed
python -m fuzz --list
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fuzz.doors import DOORS
from fuzz.run import DoorFuzzer, guided
from harness.fuzz_command import FuzzRun, MemoryGrowth, fuzz_command


def _main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in DOORS:
        print(__doc__, *DOORS, sep="\n")
        sys.exit(0 if sys.argv[1:] == ["--list"] else 2)
    name = sys.argv.pop(1)
    if sys.argv[1:2] == ["--guided"]:
        guided(name, Path(sys.argv[2]), sys.argv[3:])

    def fuzz(run: FuzzRun) -> dict[str, Any]:
        growth = MemoryGrowth()
        with TemporaryDirectory() as folder:
            fuzzer = DoorFuzzer(name, Path(folder), run.seed)
            for inputs in run.rounds(fuzzer):
                fuzzer.run(inputs)
                run.show(fuzzer, f", {growth.look()}")
        return run.figures(fuzzer) | {"outcomes": fuzzer.outcomes, "memory_mib": growth.mib}

    fuzz_command(__doc__, fuzz)


if __name__ == "__main__":
    _main()
