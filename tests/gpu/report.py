"""What became of the tests on a GPU, and what they measured, as JSON and as Markdown."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest


@dataclass(slots=True)
class Result:
    """One test: what it shows, what became of it, and why; `measured` has texts by name."""

    test: str
    shows: str
    outcome: str
    seconds: float
    reason: str = ""
    measured: Mapping[str, str] = field(default_factory=dict)


class GpuReport:
    """A pytest plugin that writes `report.json` and `report.md` into a folder."""

    def __init__(self, folder: Path, machine: Mapping[str, str]) -> None:
        self._folder = folder
        self._machine = machine
        self._shows: dict[str, str] = {}
        self.results: list[Result] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            text = getattr(getattr(item, "function", None), "__doc__", None)
            self._shows[item.nodeid] = _sentence(item.name, text)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            measured = {str(name): str(value) for name, value in report.user_properties}
            shows = self._shows.get(report.nodeid, report.nodeid)
            self.results.append(
                Result(
                    report.nodeid.rpartition("/")[2],
                    shows,
                    report.outcome if report.when == "call" else _OUTSIDE[report.outcome],
                    round(report.duration, 2),
                    _reason(report),
                    measured,
                )
            )

    def pytest_sessionfinish(self) -> None:
        if not self.results:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        whole = {
            "commit": _commit(),
            "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "machine": dict(self._machine),
            "results": [asdict(result) for result in self.results],
        }
        (self._folder / "report.json").write_text(json.dumps(whole, indent=1))
        (self._folder / "report.md").write_text(markdown(self._machine, self.results))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if any(result.measured for result in self.results):
            terminalreporter.section("measured")
            terminalreporter.write(markdown(self._machine, self.results))


_OUTSIDE = {"skipped": "skipped", "failed": "error"}
"""Outcomes of what comes before and after a test."""


def markdown(machine: Mapping[str, str], results: Sequence[Result]) -> str:
    """A line on the machine, and a table of the tests."""
    said = ", ".join(f"{name}: {value}" for name, value in machine.items())
    lines = [said or "no GPU", "", "| what | outcome | measured |", "|---|---|---|"]
    for result in results:
        values = [f"{name} {_first_line(value)}" for name, value in result.measured.items()]
        cells = (result.shows, result.outcome, "; ".join(values) or result.reason)
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _sentence(name: str, text: str | None) -> str:
    """What a test shows: its name in words, with its parameters, or the first line of its text."""
    words, bracket, parameters = name.removeprefix("test_").partition("[")
    said = _first_line(text or "") or words.replace("_", " ")
    return said + (f" ({parameters.rstrip(']')})" if bracket else "")


def _reason(report: pytest.TestReport) -> str:
    """The first line of what a failure or a skip says."""
    if report.outcome == "passed":
        return ""
    found = report.longrepr
    text = str(found[2]) if isinstance(found, tuple) else str(found)
    crash = getattr(found, "reprcrash", None)
    return _first_line(crash.message if crash else text).removeprefix("Skipped: ")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _commit() -> str:
    """The commit of the working tree; empty where there is no git, as on a machine that is lent."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
