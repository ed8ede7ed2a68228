"""locust against the demo: users of gRPC, of HTTP, and of what else there is.

These are OpenAI's endpoints, and an encoder.

python -m loadtest.tools.locust [--seconds 60]
"""

from __future__ import annotations

import csv
import importlib.util
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadtest.tools.outcome import Outcome
from loadtest.tools.programs import MORE_SECONDS, ToolError, read_json, run_program
from loadtest.tools.report import Addresses, main

FILE = Path(__file__).resolve().parents[1] / "locust" / "locustfile.py"
_ROOT = FILE.parents[2]
_FAILED = 1  # the exit status of a run with failures, whose report is whole


def run(addresses: Addresses, seconds: float, folder: Path) -> list[Outcome]:
    """All kinds of well-behaved users at the same time."""
    return put_on(addresses, seconds, folder, well_behaved(addresses), 8)


def well_behaved(addresses: Addresses) -> list[str]:
    """The kinds of users that a server has everything for, and that stay to the end."""
    wanted = {"OpenAiUser": "/v1/models", "EncoderUser": "/v2/models/minilm/ready"}
    return ["GrpcUser", "HttpUser", *(kind for kind in wanted if _has(addresses, wanted[kind]))]


def put_on(
    addresses: Addresses,
    seconds: float,
    folder: Path,
    users: Sequence[str],
    count: int,
    pause: float = 0.0,
) -> list[Outcome]:
    """So many users of these kinds, each with a pause of so many seconds between its tasks."""
    if importlib.util.find_spec("locust") is None:
        raise ToolError("locust is not installed: pip install 'penstock[loadtest]'")
    prefix = folder.resolve() / "locust"
    command = [sys.executable, "-m", "locust", "-f", str(FILE), *users, "--headless"]
    command += [
        "-u",
        str(count),
        "-r",
        str(count),
        f"--run-time={max(1, round(seconds))}s",
        "--only-summary",
    ]
    command += [f"--csv={prefix}", "--csv-full-history", f"--html={prefix}.html"]
    command += [f"--json-file={prefix}", "--stop-timeout=60"]
    environment = {"GRPC": addresses.grpc, "HTTP": addresses.http, "PAUSE": str(pause)}
    report = Path(f"{prefix}.json")
    report.unlink(missing_ok=True)
    done = run_program(command, seconds + MORE_SECONDS, environment, _ROOT)
    if done.status not in (0, _FAILED) or not report.exists():
        raise ToolError(f"locust ended with status {done.status}: {done.errors[-2000:]}")
    return [_outcome(entry, prefix, seconds) for entry in read_json(report)]


def _has(addresses: Addresses, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{addresses.http}{path}", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _outcome(entry: Any, prefix: Path, seconds: float) -> Outcome:
    times = sorted((float(ms), count) for ms, count in entry["response_times"].items())
    history = [
        row
        for row in csv.DictReader(Path(f"{prefix}_stats_history.csv").read_text().splitlines())
        if row["Name"] == entry["name"] and row["Requests/s"] not in ("", "N/A")
    ]
    begin = float(history[0]["Timestamp"]) if history else 0.0
    failures = csv.DictReader(Path(f"{prefix}_failures.csv").read_text().splitlines())
    return Outcome(
        f"{entry['method']} {entry['name']}",
        entry["num_requests"],
        entry["num_failures"],
        entry["num_requests"] / seconds,
        _percentile(times, 0.5),
        _percentile(times, 0.95),
        _percentile(times, 0.99),
        [(float(row["Timestamp"]) - begin, float(row["Requests/s"])) for row in history],
        [
            (float(row["Timestamp"]) - begin, float(row["99%"]))
            for row in history
            if row["99%"] not in ("", "N/A")
        ],
        [row["Error"] for row in failures if row["Name"] == entry["name"]][:5],
    )


def _percentile(times: list[tuple[float, int]], share: float) -> float:
    left = share * sum(count for _, count in times)
    for ms, count in times:
        left -= count
        if left <= 0:
            return ms
    return 0.0


if __name__ == "__main__":
    main("locust", run)
