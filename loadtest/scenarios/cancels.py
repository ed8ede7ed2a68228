"""Ten thousand calls that nobody waits for: what the server still holds afterwards.

    python -m loadtest.scenarios.cancels [--count 10000] [--transport grpcio]

Run from the root of the repository: the clients and the leak checker are those of the tests.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.harness.leaks import LeakChecker

from loadtest.process import penstock
from penstock.demo import write_demo

_CLIENTS = Path(__file__).parents[2] / "tests" / "harness" / "cancelling.py"
_IN_FLIGHT = 64


def leave(target: str, count: int) -> dict[str, int]:
    """Make and leave so many calls; how they ended, by the way of leaving."""
    command = [sys.executable, str(_CLIENTS), target, str(count), str(_IN_FLIGHT)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    outcomes: dict[str, int] = json.loads(done.stdout)
    return outcomes


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as temporary:
        models = Path(temporary) / "models"
        write_demo(models, report=lambda _: None)
        with penstock(models, f"--grpc-transport={options.transport}") as server:
            checker = LeakChecker(server.pid, f"http://127.0.0.1:{server.metrics_port}/metrics")
            leave(server.target, 200)
            before = checker.at_rest()
            start, cpu = time.perf_counter(), server.cpu_seconds()
            outcomes = leave(server.target, options.count)
            seconds, cpu = time.perf_counter() - start, server.cpu_seconds() - cpu
            leaks = checker.leaks(before)
            after = checker.holdings()
    for name, count in sorted(outcomes.items()):
        print(f"{count:7d}  {name}")
    print(f"{options.count} calls in {seconds:.1f} s, {cpu / options.count * 1e6:.0f} us CPU each")
    print(f"{'held':>28} {'before':>8} {'after':>8}")
    for name in before:
        print(f"{name:>28} {before[name]:8.0f} {after[name]:8.0f}")
    sys.exit(f"leaked: {leaks}" if leaks else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--transport", choices=("grpcio", "native"), default="native")
    return parser.parse_args()


if __name__ == "__main__":
    main()
