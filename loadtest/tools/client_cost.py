"""What load tools themselves cost: CPU time of the tool for each request, beside each other.

python -m loadtest.tools.client_cost [--seconds 5] [--rounds 3]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from loadtest.process import Server, penstock
from loadtest.report import Row, arguments, show
from loadtest.tools.analyzer_files import write_inputs, write_models
from loadtest.tools.outcome import server_counts
from loadtest.tools.programs import ToolError, program

_KINDS = {
    "unary, 1 at a time": ("identity", 1, False),
    "unary, 8 at a time": ("identity", 8, False),
    "streams of 3 responses, 4 at a time": ("repeat", 4, True),
}


def main() -> None:
    """Run each tool for each kind of load, and print microseconds of CPU a request."""
    chosen = arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_inputs(folder)
        with penstock(write_models(folder / "models")) as server:
            rows = [_row(name, server, folder, chosen.seconds, chosen.rounds) for name in _KINDS]
    show("CPU of the tool, µs a request", rows, chosen.json)


def _row(name: str, server: Server, folder: Path, seconds: float, rounds: int) -> Row:
    model, slots, streamed = _KINDS[name]
    data = folder / "repeat.json" if streamed else folder / "data.json"
    # Of a longer and a shorter run, so that what starting costs is in neither.
    lengths = (seconds, seconds / 4)
    makers: dict[str, Callable[[float], Sequence[str | Path]]] = {
        "penstock perf": lambda length: _perf(server, model, slots, data, length),
        "perf_analyzer": lambda length: _analyzer(server, model, slots, data, length, streamed),
    }
    row: dict[str, float | str] = {"load": name}
    for tool, make in makers.items():
        found = []
        for _ in range(rounds):
            (used, made), (less, fewer) = (_cost(make(length), server) for length in lengths)
            found.append((used - less) / (made - fewer) * 1e6)
        row[tool] = statistics.median(found)
    row["ratio"] = float(row["penstock perf"]) / float(row["perf_analyzer"])
    return row


def _perf(
    server: Server, model: str, slots: int, data: Path, length: float
) -> Sequence[str | Path]:
    command = [sys.executable, "-m", "penstock", "perf", "-m", model, "-u", server.target]
    return [*command, "-c", str(slots), "--input-data", data, "-d", str(length), "--warmup", "0"]


def _analyzer(
    server: Server, model: str, slots: int, data: Path, length: float, streamed: bool
) -> Sequence[str | Path]:
    command = [program("perf_analyzer"), "-m", model, "-i", "grpc", "-u", server.target]
    command += [f"--concurrency-range={slots}", f"--measurement-interval={length / 3 * 1e3:.0f}"]
    command += ["--max-trials=3", "--stability-percentage=99999", f"--input-data={data}"]
    return [*command, "--async", *(["--streaming"] if streamed else [])]


def _cost(command: Sequence[str | Path], server: Server) -> tuple[float, int]:
    """CPU seconds of a command with its processes, and how many requests the server counted."""
    http = f"127.0.0.1:{server.http_port}"
    libraries = {"LD_LIBRARY_PATH": str(Path(program("perf_analyzer")).resolve().parent / "lib")}
    before, requests = os.times(), server_counts(http).success
    done = subprocess.run(
        command, env={**os.environ, **libraries}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ToolError(f"{command[0]} ended with status {done.returncode}: {done.stderr[-500:]}")
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    return used, server_counts(http).success - requests


if __name__ == "__main__":
    main()
