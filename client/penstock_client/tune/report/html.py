"""Results as one page of HTML with charts, which loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock_client.perf.report.charts import Axis, Series, line_chart, stacked_bars
from penstock_client.perf.report.page import charts, heading, html_table, page, verbatim, words
from penstock_client.tune.choice import Figures, broken
from penstock_client.tune.measured import Measured, Ranking, by_model, mebibytes
from penstock_client.tune.report.table import cells, verdict
from penstock_client.tune.session import Outcome
from penstock_client.tune.space import label

_MOST_BARS = 12
_LATENCIES = ("p50", "p99")


def html_report(outcome: Outcome) -> str:
    """The page."""
    return page(f"penstock tune: {outcome.plan.name}", _parts(outcome))


def _parts(outcome: Outcome) -> Iterator[str]:
    ranking = outcome.ranking
    for line in verdict(outcome):
        yield words(line.strip(), bad=ranking.winner is None)
    yield charts(_charts(ranking))
    yield heading("Variants at their best load")
    heads, rows = cells(ranking, ranking.rows)
    yield html_table(heads, rows)
    for each in ranking.failed:
        yield words(f"failed: {label(each.changes)}: {each.failure}", bad=True)
    yield heading("Nothing beats these in throughput and p99 latency")
    yield _front_table(ranking)
    for each in ranking.variants:
        yield heading(label(each.changes))
        yield _loads(each, ranking)
    if ranking.winner is not None:
        for files, own in outcome.composition.divided(ranking.winner.variant.changes):
            if own or files is outcome.composition.main:
                yield heading(f"config.pbtxt of {files.name} in the best")
                yield verbatim(files.config_text(own))


def _charts(ranking: Ranking) -> Iterator[str]:
    yield line_chart(
        "p99 latency over throughput", Axis("inferences/s"), Axis("ms", log=True), _series(ranking)
    )
    rows = [row for row in ranking.rows if row.figures.get("memory_bytes")][:_MOST_BARS]
    if rows:
        yield stacked_bars(
            "Memory at the best load",
            "MiB",
            [label(row.variant.changes) for row in rows],
            ["server", "model"],
            [_memory(row.figures) for row in rows],
        )


def _series(ranking: Ranking) -> list[Series]:
    """The front, the best and the original as lines over their loads, all others as dots."""
    best, original = ranking.winner, ranking.original
    special = [row.variant for row in (best, original) if row is not None]
    others = [each for each in ranking.variants if not any(each is one for one in special)]
    front = Series("front", [_place(figures) for _, figures in ranking.front()])
    found = [front, Series("others", [p for each in others for p in _places(each)], scattered=True)]
    if original is not None:
        found.append(Series("original", _places(original.variant)))
    if best is not None and best is not original:
        found.append(Series("best", _places(best.variant)))
    return found


def _places(measured: Measured) -> list[tuple[float, float]]:
    return [_place(figures) for figures in measured.points if figures["latency_ms"]]


def _place(figures: Figures) -> tuple[float, float]:
    return figures["inferences_per_second"], figures["latency_ms"]["p99"]


def _memory(figures: Figures) -> Sequence[float]:
    """MiB of the empty server, and of what came with the model."""
    model = figures.get("model_memory_bytes") or 0
    return mebibytes(figures["memory_bytes"] - model), mebibytes(model)


def _front_table(ranking: Ranking) -> str:
    return html_table(
        ["variant", "load", "inferences/s", "p99 ms"],
        [
            [label(variant.changes), figures["load"]["label"], *_place(figures)]
            for variant, figures in ranking.front()
        ],
    )


def _loads(measured: Measured, ranking: Ranking) -> str:
    heads = ["load", "inferences/s", *(f"{name} ms" for name in _LATENCIES), "MiB", "failed", ""]
    rows = []
    for figures in (each for point in measured.points for each in by_model(point)):
        latency = figures["latency_ms"] or {}
        memory = figures.get("memory_bytes")
        rows.append(
            [
                figures["load"]["label"],
                figures["inferences_per_second"],
                *(latency.get(name) for name in _LATENCIES),
                mebibytes(memory) if memory else None,
                figures["failed"],
                "; ".join(broken(figures, ranking.limits)),
            ]
        )
    return html_table(heads, rows)
