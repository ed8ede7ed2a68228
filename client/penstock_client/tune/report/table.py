"""Results on the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import expm1

from penstock_client.tune.check import Check
from penstock_client.tune.choice import Objective, broken
from penstock_client.tune.load.load_test import given_inputs
from penstock_client.tune.measured import Ranking, Row, headline, mebibytes
from penstock_client.tune.search import MARGIN, is_better
from penstock_client.tune.session import Outcome
from penstock_client.tune.settings import CACHE
from penstock_client.tune.space import label, shown

_MOST_ROWS = 20
_MOST_GAIN = 100.0  # as a logarithm, which weights may have multiplied
_QUIET = 0.3  # cores that what else runs on a machine may take without being told of
_CHECKED = (
    "throughput",
    "goodput",
    "responses_per_second",
    "latency_p50_ms",
    "latency_p99_ms",
    "server_cpu_us_per_request",
)


def summary_lines(outcome: Outcome) -> Iterator[str]:
    """A table of the variants, the best first, and what to take."""
    ranking = outcome.ranking
    if ranking.rows:
        yield ""
        yield from table(ranking)
    for each in ranking.failed:
        yield f"failed: {label(each.changes)}: {each.failure}"
    yield ""
    yield from verdict(outcome)


def table(ranking: Ranking) -> Iterator[str]:
    """One line for each variant at its best load, with why it is chosen or not."""
    aims = " and ".join(_named(each) for each in ranking.aims.objectives)
    yield f"  each at its best load, the best first by {aims}"
    heads, rows = cells(ranking, ranking.rows[:_MOST_ROWS])
    lines = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for *figures, why in lines:
        cut = zip(figures, widths, strict=False)
        yield "  " + "  ".join([*(text.rjust(width) for text, width in cut), why])
    if len(ranking.rows) > _MOST_ROWS:
        yield f"  and {len(ranking.rows) - _MOST_ROWS} more, in the files"


def cells(ranking: Ranking, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """The heads of the table and its rows."""
    settings = list(dict.fromkeys(name for row in rows for name in row.variant.settings))
    heads = [*settings, "load", "inferences/s", *_extra_heads(rows)]
    heads += ["p50 ms", "p99 ms", "MiB", "why"]
    return heads, [_cells(ranking, row, settings, _extra_heads(rows)) for row in rows]


def _extra_heads(rows: Sequence[Row]) -> list[str]:
    """Figures that are not of every model."""
    names = {"goodput": "goodput/s", "responses_per_second": "responses/s"}
    return [head for name, head in names.items() if any(name in row.figures for row in rows)]


def _cells(ranking: Ranking, row: Row, settings: Sequence[str], extra: Sequence[str]) -> list[str]:
    figures = row.figures
    latency = figures["latency_ms"] or {}
    further = {
        "goodput/s": figures.get("goodput"),
        "responses/s": figures.get("responses_per_second"),
    }
    memory = figures.get("memory_bytes")
    return [
        *(shown(row.variant.settings.get(name)) for name in settings),
        figures["load"]["label"],
        f"{figures['inferences_per_second']:.1f}",
        *("-" if further[head] is None else f"{further[head]:.1f}" for head in extra),
        *(_number(latency.get(name)) for name in ("p50", "p99")),
        f"{mebibytes(memory):.0f}" if memory else "-",
        ", ".join(_reasons(ranking, row)),
    ]


def _named(objective: Objective) -> str:
    weight = abs(objective.weight)
    return objective.name if weight == 1 else f"{objective.name} (weight {weight:g})"


def _reasons(ranking: Ranking, row: Row) -> Iterator[str]:
    """Why a row is chosen or not."""
    winner, original = ranking.winner, ranking.original
    if row is winner:
        yield "best"
    if row is original:
        yield "original"
    if row.variant.failure:
        yield "failed later"
    elif row.standing.rank == 1:
        yield from broken(row.figures, ranking.limits)
    elif winner is not None and original is not None and row.standing.kept:
        yield from _compared(ranking, row, winner, original)


def _compared(ranking: Ranking, row: Row, winner: Row, original: Row) -> Iterator[str]:
    """How far a row that keeps all limits is from the original, and what that means."""
    if row is original or not original.standing.kept:
        return
    gain = expm1(min(row.standing.value - original.standing.value, _MOST_GAIN))
    yield f"{abs(gain):.1%} {'better' if gain > 0 else 'worse'} than the original"
    if winner is not original or gain <= 0:
        return
    if is_better(row.standing, original.standing):
        yield "which did not last"
    else:
        yield f"less than {expm1(MARGIN):.0%} is noise"


def verdict(outcome: Outcome) -> Iterator[str]:
    """The variant to take and its gains; or the one that came closest to the limits."""
    if outcome.ended:
        yield outcome.ended
    ranking = outcome.ranking
    winner = ranking.winner
    if winner is None:
        yield from _none(ranking)
        return
    figures = ", ".join(headline(winner.figures, ranking.aims))
    yield f"best: {label(winner.variant.changes)}: {figures}"
    if winner is ranking.original and outcome.check is None:
        yield "no variant is better than the original by more than 2 %"
    if _is_cached(winner) and not given_inputs(outcome.plan.perf):
        yield (
            "rough: all requests were the same, and the cache answered them: give those of your"
            " clients by -- --input-data FILE, or different ones by -- --input-count 1000"
        )
    if (cores := others_cores(ranking)) > _QUIET:
        yield f"rough: other programs took up to {cores:.1f} cores of this machine meanwhile"
    for name, before, after in () if winner is ranking.original else ranking.gains():
        ratio = f"{after / before:.2f} times" if before else "was"
        yield f"  {name}: {_number(after)}, {ratio} the original's {_number(before)}"
    if outcome.check is not None:
        yield from _checked(outcome.check)


def _is_cached(row: Row) -> bool:
    """Whether the model, or a composing one, has the response cache."""
    settings = row.variant.settings
    return any(value is True for name, value in settings.items() if name.split("/")[-1] == CACHE)


def others_cores(ranking: Ranking) -> float:
    """The most cores that neither the server nor the load used of this machine, in any load."""
    cores = os.cpu_count() or 1
    return max(
        (
            cores * figures["client"]["machine_busy"]
            - figures["server"].get("cpu_cores", cores)
            - figures["client"]["busy"]
            for variant in ranking.variants
            for figures in variant.points
        ),
        default=0.0,
    )


def _checked(check: Check) -> Iterator[str]:
    """The best variant measured once more, in turns with the original."""
    yield f"once more, {check.rounds} times in turns, by the original's:"
    for name in _CHECKED:
        if each := check.comparison["figures"].get(name):
            between = (
                ""
                if each["low"] is None
                else f", with 95 % confidence {each['low']:.2f} to {each['high']:.2f}"
            )
            yield f"  {name}: {each['ratio']:.2f} times{between}"
    if check.broken:
        yield f"  limits broken in {check.broken} of {check.rounds} rounds"
    if not check.is_confirmed:
        yield "the gain did not last: the original stays"


def _none(ranking: Ranking) -> Iterator[str]:
    closest = ranking.closest
    if closest is None:
        yield "no variant could be measured"
        return
    yield "no variant keeps the limits; closest comes"
    yield f"  {label(closest.variant.changes)} at {closest.figures['load']['label']}:"
    yield from (f"  {text}" for text in broken(closest.figures, ranking.limits))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
