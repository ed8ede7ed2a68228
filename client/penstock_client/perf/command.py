"""The command `penstock perf`: measures what was asked for, reports it, and ends with a status."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock_client import __version__
from penstock_client.perf.errors import PerfError, Status
from penstock_client.perf.gate import Limit, check_usable, read_gate, violations
from penstock_client.perf.interrupts import single_interrupts
from penstock_client.perf.measure import Progress
from penstock_client.perf.options import STDOUT, Options
from penstock_client.perf.parser import command_parser as parser
from penstock_client.perf.reading import read_options
from penstock_client.perf.report.charts import MISSING, can_draw
from penstock_client.perf.report.console import Ticker
from penstock_client.perf.report.csv import write_loads, write_requests
from penstock_client.perf.report.html import html_report
from penstock_client.perf.session import Outcome, Session
from penstock_client.perf.summary import is_short, is_unanswered

__all__ = ["parser", "run"]


def run(arguments: Sequence[str]) -> int:
    """The exit status; see `Status`."""
    try:
        options = read_options(arguments, os.environ)
    except SystemExit as ended:  # of argparse, whose status for wrong options means another here
        return int(Status.USAGE) if ended.code else 0
    try:
        with single_interrupts():
            return int(_run(options))
    except PerfError as error:
        print(f"penstock perf: {error}", file=sys.stderr, flush=True)
        return int(error.status)
    except KeyboardInterrupt:
        return int(Status.INTERRUPTED)
    except BrokenPipeError:
        return int(output_closed())


def output_closed() -> Status:
    """The status after a broken pipe; nothing is written any more, at the exit neither."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Status.PIPE_CLOSED


def _run(options: Options) -> Status:
    gate = read_gate(options.outputs.gate) if options.outputs.gate else []
    check_usable(gate, compared=len(options.targets) == 2)
    for file in options.outputs.files:
        _check_writable(file)
    if options.outputs.html is not None and not can_draw():
        raise PerfError(f"--html: {MISSING}")
    ticker = Ticker(sys.stderr, options.outputs.quiet)
    # Figures go to the standard error where the standard output is for JSON.
    stream = sys.stderr if options.outputs.json == STDOUT else sys.stdout

    def say(text: Iterable[str]) -> None:
        ticker.clear()
        try:
            print("\n".join(text), file=stream, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise PerfError(f"figures cannot be printed: {error}") from error

    def report(progress: Progress) -> None:
        ticker(progress)

    outcome = Session(options, say, report).run()
    document = _document(options, outcome, gate)
    if reasons := document["verdict"]["reasons"]:
        say(["", *reasons])
    _write(options, outcome, document)
    return Status(document["verdict"]["status"])


def _check_writable(file: Path) -> None:
    """Raise `PerfError` before a long load whose results would have no place."""
    if file.is_dir():
        raise PerfError(f"results cannot be written: {file} is a directory")
    if not file.parent.is_dir():
        raise PerfError(f"results cannot be written: there is no directory {file.parent}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise PerfError(f"results cannot be written: no permission to write {file}")


def _document(options: Options, outcome: Outcome, gate: list[Limit]) -> dict[str, Any]:
    """All figures, and the verdict."""
    document: dict[str, Any] = {
        "tool": f"penstock perf {__version__}",
        "arguments": list(options.words),
        "model": options.request.model,
        "targets": [each.endpoint.authority for each in options.targets],
        "points": outcome.points,
    }
    if outcome.comparison is not None:
        document |= {"comparison": outcome.comparison, "rounds": outcome.rounds}
    status, reasons = _verdict(outcome, list(violations(gate, document)))
    return {**document, "verdict": {"status": int(status), "reasons": reasons}}


def _verdict(outcome: Outcome, broken: list[str]) -> tuple[Status, list[str]]:
    """The exit status, and the reasons for one that is not `FINE`."""
    if outcome.interrupted:
        return Status.INTERRUPTED, ["interrupted: these are the results until then", *broken]
    figures = list(outcome.all)
    failed = sum(each["failed"] for each in figures)
    problems = [problem for each in figures for problem in each["problems"]]
    problems += [outcome.problem] if outcome.problem else []
    short = [
        f"{each['load']['label']}: not reached: {each['throughput']:.1f} of"
        f" {each['offered']:.1f} requests a second were answered"
        for each in figures
        if is_short(each)
    ]
    short += [
        f"{each['load']['label']}: no request was answered in its time:"
        " measure for longer (--duration)"
        for each in figures
        if is_unanswered(each)
    ]
    failures = [f"{failed} requests failed"] if failed else []
    reasons = [*problems, *failures, *broken, *short]
    if problems or failed:
        return Status.FAILURES, reasons
    if broken:
        return Status.GATE, reasons
    return (Status.SHORT if short else Status.FINE), reasons


def _write(options: Options, outcome: Outcome, document: Mapping[str, Any]) -> None:
    """Write the results where they are wanted; raises `PerfError`."""
    outputs = options.outputs
    try:
        if outputs.json is not None:
            text = json.dumps(document, indent=1) + "\n"
            if outputs.json == STDOUT:
                print(text, end="", flush=True)
            else:
                outputs.json.write_text(text)
        if outputs.csv is not None:
            write_loads(outputs.csv, list(outcome.all), options.request.model)
        if outputs.html is not None:
            outputs.html.write_text(html_report(document))
        if outputs.requests is not None:
            write_requests(outputs.requests, outcome.requests)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise PerfError(f"results cannot be written: {error}") from error
