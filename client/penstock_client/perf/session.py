"""All measurements of one run of `penstock perf`: of one server, or of two in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from penstock_client.perf.compare import compare, comparison
from penstock_client.perf.errors import PerfError
from penstock_client.perf.load.plan import Point, Traffic
from penstock_client.perf.load.results import Results
from penstock_client.perf.measure import Measured, Report, measure
from penstock_client.perf.options import Options, Target
from penstock_client.perf.report.console import comparison_table, lines, table
from penstock_client.perf.server_side import Observer
from penstock_client.perf.summary import summarize
from penstock_client.perf.traffic import server_of, traffic_for

Say = Callable[[Iterable[str]], None]
"""Prints lines for the user."""


@dataclass(slots=True)
class Outcome:
    """Figures of each load, or of each round; requests where they are wanted.

    `problem` is the reason why no further load could begin.
    """

    points: list[dict[str, Any]] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    comparison: dict[str, Any] | None = None
    requests: list[Results] = field(default_factory=list)
    interrupted: bool = False
    problem: str = ""

    @property
    def all(self) -> Iterator[dict[str, Any]]:
        """The figures of everything that was measured."""
        yield from self.points
        yield from self.rounds


class Session:
    """Measures what the options ask for; `say` prints, `report` shows progress."""

    def __init__(self, options: Options, say: Say, report: Report) -> None:
        self._options = options
        self._say = say
        self._report = report
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Measure everything, until a load cannot begin; raises `PerfError` if none can."""
        with ExitStack() as stack:
            request = self._options.request
            targets = self._options.targets
            traffic = [stack.enter_context(traffic_for(each, request)) for each in targets]
            if len(targets) == 2:
                self._compare(traffic)
            else:
                self._points(traffic[0])
        return self.outcome

    def _points(self, traffic: Traffic) -> None:
        found = self.outcome
        for point in self._options.points:
            figures = self._measure(point, self._options.targets[0], traffic)
            if figures is None:
                break
            found.points.append(figures)
            self._say(lines(figures))
            if found.interrupted or figures["problems"]:
                break
        if len(found.points) > 1:
            self._say(table(found.points))

    def _compare(self, traffic: list[Traffic]) -> None:
        if len(self._options.points) > 1:
            raise PerfError("--compare is for one load: give one number for it")
        (point,) = self._options.points
        targets, found = self._options.targets, self.outcome

        def measured(side: int) -> dict[str, Any] | None:
            figures = self._measure(point, targets[side], traffic[side])
            if figures is None:
                return None
            figures["side"] = "AB"[side]
            figures["load"]["label"] = f"{figures['side']} {point.label}"
            found.rounds.append(figures)
            self._say([f"{figures['load']['label']}: {figures['throughput']:.1f} requests/s"])
            return None if found.interrupted or figures["problems"] else figures

        pairs = compare(measured, self._options.rounds)
        names = [each.endpoint.authority for each in targets]
        found.comparison = comparison(pairs, names)
        self._say(comparison_table(found.comparison))

    def _measure(self, point: Point, target: Target, traffic: Traffic) -> dict[str, Any] | None:
        """The figures of a load; `None` if it cannot begin, and others are there to be reported."""
        options, found = self._options, self.outcome
        observer = Observer(server_of(target, options.request), target.metrics, target.pid)
        try:
            measured = measure(traffic, point, options.limits, observer, self._report)
        except PerfError as error:
            if not any(found.all):
                raise
            found.problem = f"{point.label}: {error}"
            return None
        except KeyboardInterrupt:
            if not any(found.all):
                raise
            found.interrupted = True
            return None
        found.interrupted = measured.interrupted
        if options.outputs.requests is not None:
            self.outcome.requests.append(measured.results)
        return self._figures(measured, target, traffic)

    def _figures(self, measured: Measured, target: Target, traffic: Traffic) -> dict[str, Any]:
        host = target.endpoint.host
        return summarize(
            measured,
            rows=self._options.request.batch,
            streamed=traffic.streamed,
            local=host in ("localhost", "::1") or host.startswith("127."),
            goals=self._options.goals,
        )
