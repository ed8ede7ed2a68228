"""The figures of a soak: as JSON, and as the Markdown tables of `docs/reliability.md`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.soak.ledger import Ledger
from loadtest.soak.watch import Sample, Watch

_OUTCOMES = "right", "wrong", "lost", "expected", "unexpected"


@dataclass(frozen=True, slots=True)
class Report:
    """All that a soak has found."""

    command: str
    commit: str
    minutes: float
    ledger: Ledger
    watch: Watch
    before: Sample
    after: Sample
    exit_status: int | None
    left: Sequence[str]
    tracebacks: int

    @property
    def failures(self) -> list[str]:
        """Why the soak is not passed; none if it is."""
        total = self.ledger.total
        found = [f"{total(o)} {o}" for o in ("wrong", "lost", "unexpected") if total(o)]
        if self.exit_status != 0:
            found.append(f"exit status {self.exit_status}")
        if self.after.descriptors > self.before.descriptors:
            found.append(f"{self.after.descriptors - self.before.descriptors} descriptors more")
        return [*found, *(f"left behind: {name}" for name in self.left)]

    def as_json(self) -> dict[str, Any]:
        ledger = self.ledger
        return {
            "command": self.command,
            "commit": self.commit,
            "minutes": self.minutes,
            "outcomes": {kind: dict(counts) for kind, counts in ledger.outcomes.items()},
            "errors": [[*key, count] for key, count in ledger.errors.items()],
            "examples": dict(ledger.examples),
            "troubles": dict(ledger.made),
            "recoveries": dict(ledger.recoveries),
            "held_back": ledger.held_back,
            "standstill": ledger.standstill,
            "slope_mib_per_hour": self.watch.slope(),
            "samples": self.watch.as_rows(),
            "exit_status": self.exit_status,
            "left": list(self.left),
            "tracebacks_in_log": self.tracebacks,
            "failures": self.failures,
        }

    def as_markdown(self) -> str:
        parts = [self._head(), self._calls(), self._errors(), self._recoveries(), self._holdings()]
        return "\n\n".join(parts) + "\n"

    def _head(self) -> str:
        made = ", ".join(f"{count} of {cause}" for cause, count in sorted(self.ledger.made.items()))
        return (
            f"`{self.command}` at `{self.commit}`: {self.minutes:g} minutes; trouble: {made}. The"
            f" clients stood still for {self.ledger.standstill:.1f} s at most."
        )

    def _calls(self) -> str:
        ledger = self.ledger
        rows: list[Sequence[object]] = [
            [kind, sum(counts.values()), *(counts[outcome] for outcome in _OUTCOMES)]
            for kind, counts in sorted(ledger.outcomes.items())
        ]
        totals = [ledger.total(outcome) for outcome in _OUTCOMES]
        head = ["calls by", "calls", "right", "wrong", "lost", "expected errors", "unexpected"]
        return markdown_table(head, [*rows, ["**all**", sum(totals), *totals]])

    def _errors(self) -> str:
        rows = [[cause, status, n] for (cause, status), n in sorted(self.ledger.errors.items())]
        return markdown_table(["cause of the error", "status", "calls"], rows)

    def _recoveries(self) -> str:
        rows = [
            [what, len(times), f"{statistics.median(times):.2f} s", f"{max(times):.2f} s"]
            for what, times in sorted(self.ledger.recoveries.items())
        ]
        return markdown_table(["model, trouble", "times", "right again, median", "max"], rows)

    def _holdings(self) -> str:
        table = holdings(self.watch, self.before, self.after)
        left = ", ".join(self.left) or "nothing"
        return (
            f"{table}\n\nThe server's memory over the second half: {self.watch.slope():+.1f} MiB an"
            f" hour. Exit status {self.exit_status}; left behind: {left}."
        )


def holdings(watch: Watch, before: Sample, after: Sample) -> str:
    """What the server held before a load, at its end, and at rest behind it."""
    end = watch.samples[-1] if watch.samples else after
    rows = [
        [name, *(_number(getattr(sample, key)) for sample in (before, end, after))]
        for name, key in (
            ("memory of the server, MiB", "server_memory"),
            ("memory of all processes, MiB", "tree_memory"),
            ("descriptors of the server", "descriptors"),
            ("descriptors of all processes", "tree_descriptors"),
            ("threads", "threads"),
            ("processes", "processes"),
            ("objects in /dev/shm", "shared_objects"),
        )
    ]
    return markdown_table(["held", "before the load", "at its end", "at rest behind it"], rows)


def markdown_table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
