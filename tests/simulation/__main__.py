"""Play seeds, in the folder of tests: `python -m simulation FIRST [COUNT]`.

Each that goes wrong is named, with what goes wrong; a single one is made smaller.
"""

from __future__ import annotations

import gc
import logging
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from simulation.models import write_repository
from simulation.world import shrunk, wrong


def main(first: int, count: int = 1) -> int:
    """Play so many seeds from the first one on; the status is 1 if something went wrong."""
    logging.disable(logging.CRITICAL)
    seen: Counter[str] = Counter()
    failed: list[int] = []
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder)
        write_repository(repository)
        gc.collect()
        gc.freeze()  # each world collects at its end, and need not look at what is older
        for seed in range(first, first + count):
            if (error := wrong(repository, seed, seen=seen)) is not None:
                failed.append(seed)
                print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        if failed and count == 1:
            kept, error = shrunk(repository, first)
            print(f"the same with its acts {sorted(kept)} alone:")
            traceback.print_exception(error)
    took = time.perf_counter() - began
    print(f"{count} seeds, {len(failed)} failed, {took:.1f} s; {dict(seen)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
