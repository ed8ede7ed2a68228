"""The command `penstock tune`: searches, reports, and ends with a status."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from penstock_client.perf.command import output_closed
from penstock_client.perf.errors import PerfError, Status
from penstock_client.perf.interrupts import single_interrupts
from penstock_client.perf.measure import Progress
from penstock_client.perf.report.console import Ticker
from penstock_client.tune.options import Plan
from penstock_client.tune.parser import command_parser as parser
from penstock_client.tune.reading import read_plans
from penstock_client.tune.report.files import write_results
from penstock_client.tune.report.table import summary_lines
from penstock_client.tune.session import Outcome, Tuning

__all__ = ["parser", "run"]


def run(arguments: Sequence[str]) -> int:
    """The exit status; see `Status` of `penstock perf`. The worst of several models counts."""
    statuses = []
    for plan in read_plans(arguments):
        try:
            with single_interrupts():
                statuses.append(_tune(plan))
        except PerfError as error:
            # Options of `penstock perf`, which an error may advise, stand behind `--` here.
            text = str(error).replace("such as --shape", "such as -- --shape")
            print(f"penstock tune: {text}", file=sys.stderr, flush=True)
            statuses.append(error.status)
        except KeyboardInterrupt:
            statuses.append(Status.INTERRUPTED)
        except BrokenPipeError:
            statuses.append(output_closed())
        if statuses[-1] >= Status.INTERRUPTED:
            break
    return int(max(statuses))


def _tune(plan: Plan) -> Status:
    ticker = Ticker(sys.stderr, plan.quiet)

    def say(text: Iterable[str]) -> None:
        ticker.clear()
        print("\n".join(text), flush=True)

    def report(title: str, progress: Progress) -> None:
        ticker(progress, f"{title}: ")

    outcome = Tuning(plan, say, report).run()
    say(summary_lines(outcome))
    say(["", *(f"wrote {path}" for path in write_results(outcome))])
    return _status(outcome)


def _status(outcome: Outcome) -> Status:
    ranking = outcome.ranking
    if outcome.interrupted:
        return Status.INTERRUPTED
    if outcome.is_lost:
        return Status.FAILURES
    if ranking.winner is not None:
        return Status.FINE
    return Status.GATE if ranking.closest is not None else Status.FAILURES
