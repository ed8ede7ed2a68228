"""Runs of a load tool by hand: against the demo for minutes, with a table and a page of plots."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.places import results_folder
from loadtest.process import penstock
from loadtest.report import Row, show
from loadtest.tools.outcome import Outcome, server_counts
from loadtest.tools.programs import ToolError
from penstock.demo import write_demo
from penstock_client.perf.report.charts import Axis, Series, line_chart
from penstock_client.perf.report.page import charts, heading, html_table, page, words


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of a server."""

    grpc: str
    http: str


Run = Callable[[Addresses, float, Path], Iterable[Outcome]]
"""Runs a tool for so many seconds, with its reports in a folder; raises `ToolError`.

What it gives until then counts.
"""


@dataclass(slots=True)
class Found:
    """Findings of a run: outcomes, requests that failed in the server, and faults of the run.

    Without an answer of the server at the end, `failed` is `None`.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    failed: int | None = None
    faults: list[str] = field(default_factory=list)


def main(tool: str, run: Run) -> None:
    """The command `python -m loadtest.tools.TOOL`."""
    parser = argparse.ArgumentParser(prog=f"python -m loadtest.tools.{tool}")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each part (60)")
    parser.add_argument("--grpc", help="a running server instead of a demo of our own")
    parser.add_argument("--http", help="the HTTP address of that server")
    folder = f"build/loadtest/{tool}"
    parser.add_argument("--out", type=results_folder, default=folder, help="reports")
    chosen = parser.parse_args()
    if bool(chosen.grpc) != bool(chosen.http):
        parser.error("--grpc and --http go together")
    found = Found()
    try:
        with _server(chosen.grpc, chosen.http) as addresses:
            _run(run, addresses, chosen.seconds, chosen.out, found)
    except ToolError as error:
        found.faults.append(str(error))
    if found.outcomes:
        _write(tool, found, chosen.out)
    if found.faults:
        sys.exit("\n".join(f"{tool}: {fault}" for fault in found.faults))
    if found.failed or any(each.errors for each in found.outcomes):
        sys.exit(1)


def _run(run: Run, addresses: Addresses, seconds: float, out: Path, found: Found) -> None:
    """Run the tool between two looks at what the server counts; raises `ToolError`."""
    before = server_counts(addresses.http)
    try:
        for outcome in run(addresses, seconds, out):
            found.outcomes.append(outcome)
    except ToolError as error:
        found.faults.append(str(error))
    found.failed = server_counts(addresses.http).failed - before.failed


def _write(tool: str, found: Found, out: Path) -> None:
    rows: list[Row] = [
        {
            "request": each.name,
            "calls": each.calls,
            "errors": each.errors,
            "a second": each.per_second,
            "p50 ms": each.p50,
            "p95 ms": each.p95,
            "p99 ms": each.p99,
        }
        for each in found.outcomes
    ]
    failed = "?" if found.failed is None else found.failed
    show(f"{tool}; {failed} failed in the server", rows, out / "table.json")
    (out / "report.html").write_text(_page(tool, found))
    print(f"{out / 'report.html'}")


@contextmanager
def _server(grpc: str | None, http: str | None) -> Iterator[Addresses]:
    if grpc and http:
        yield Addresses(grpc, http)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_demo(Path(folder), report=lambda line: None)
        with penstock(Path(folder)) as server:
            yield Addresses(server.target, f"127.0.0.1:{server.http_port}")


def _page(tool: str, found: Found) -> str:
    heads = ["request", "calls", "errors", "a second", "p50 ms", "p95 ms", "p99 ms"]
    rows = [
        [each.name, each.calls, each.errors, each.per_second, each.p50, each.p95, each.p99]
        for each in found.outcomes
    ]
    parts = [html_table(heads, rows), *(words(fault, bad=True) for fault in found.faults)]
    if found.failed:
        parts.append(words(f"{found.failed} requests failed in the server", bad=True))
    for each in found.outcomes:
        parts.append(heading(each.name))
        parts += [words(message, bad=True) for message in each.messages]
        parts.append(
            charts(
                [
                    line_chart("Requests", Axis("s"), Axis("a second"), [Series("", each.rate)]),
                    line_chart("99th percentile", Axis("s"), Axis("ms"), [Series("", each.p99s)]),
                ]
            )
        )
    return page(f"{tool} against the demo", parts)
