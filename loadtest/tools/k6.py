"""k6 against the demo: unary calls and token streams over gRPC, then inference and text over HTTP.

python -m loadtest.tools.k6 [--seconds 60]
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from loadtest.tools.outcome import Outcome, from_samples
from loadtest.tools.programs import MORE_SECONDS, ToolError, program, read_json, run_program
from loadtest.tools.report import Addresses, main

SCRIPTS = Path(__file__).resolve().parents[1] / "k6"
_TRENDS = {"grpc": ("unary", "ttft", "gap", "stream"), "http": ("infer", "generate")}


def run(addresses: Addresses, seconds: float, folder: Path) -> Iterator[Outcome]:
    """Both scripts, one after the other."""
    for script in _TRENDS:
        yield from _run(script, addresses, seconds, folder.resolve())


def _run(script: str, addresses: Addresses, seconds: float, folder: Path) -> list[Outcome]:
    report, samples = folder / f"k6-{script}.json", folder / f"k6-{script}.csv"
    report.unlink(missing_ok=True)
    command = [program("k6"), "run", "--quiet", "--no-usage-report", f"--out=csv={samples}"]
    environment = {
        "GRPC": addresses.grpc,
        "HTTP": addresses.http,
        "SECONDS": f"{seconds:g}",
        "REPORT": str(report),
    }
    command.append(str(SCRIPTS / f"{script}.js"))
    done = run_program(command, seconds + MORE_SECONDS, environment)
    if not report.exists():
        raise ToolError(f"no report of {script}.js: {done.printed[-2000:]}")
    metrics = read_json(report)["metrics"]
    checks = metrics.get("checks", {}).get("values", {"passes": 0, "fails": 1})
    errors = [line for line in done.errors.splitlines() if "level=error" in line]
    return list(_outcomes(script, samples, int(checks["fails"]), errors, seconds))


def _outcomes(
    script: str, samples: Path, failed: int, errors: list[str], seconds: float
) -> list[Outcome]:
    """A row for each time that the script takes; checks that failed stand with the first."""
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in _TRENDS[script]}
    with samples.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["metric_name"] in rows:
                at = (float(row["timestamp"]), float(row["metric_value"]))
                rows[row["metric_name"]].append(at)
    begin = min((at for found in rows.values() for at, _ in found), default=0.0)
    texts = [*errors, *["a check failed"] * (failed - len(errors))][:failed]
    return [
        from_samples(
            f"{script}: {name}",
            [(at - begin, took) for at, took in found],
            texts if number == 0 else [],
            seconds,
        )
        for number, (name, found) in enumerate(rows.items())
    ]


if __name__ == "__main__":
    main("k6", run)
