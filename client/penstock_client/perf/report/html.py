"""Results as one page of HTML with charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock_client.perf.report.charts import Axis, Series, line_chart, stacked_bars
from penstock_client.perf.report.figures import TIMES, Figures, distributions
from penstock_client.perf.report.page import charts, heading, html_table, page, verbatim, words

_MS = "ms"
_SHOWN = ("p50", "p95", "p99")
_PARTS = ("queue", "compute_input", "compute_infer", "compute_output")


def html_report(document: Figures) -> str:
    """The page with the figures of all loads."""
    title = f"penstock perf: {document['model']} at {', '.join(document['targets'])}"
    return page(title, _parts(document))


def _parts(document: Figures) -> Iterator[str]:
    points: Sequence[Figures] = document["points"]
    yield verbatim(f"penstock perf {' '.join(document['arguments'])}")
    for reason in document.get("verdict", {}).get("reasons", ()):
        yield words(reason, bad=True)
    if "comparison" in document:
        yield from _comparison(document["comparison"])
    yield heading("Loads")
    yield _loads(points or document.get("rounds", ()))
    if len(points) > 1:
        yield charts(_over_loads(points))
    for point in points:
        yield heading(point["load"]["label"])
        yield from _faults(point)
        yield _times(point)
        yield charts(_of_one(point))


def _loads(points: Sequence[Figures]) -> str:
    heads = ["load", "requests", "failed", "requests/s", "inferences/s", "responses/s", "tokens/s"]
    heads += ["goodput/s", "p50 ms", "p95 ms", "p99 ms", "client's CPU µs/request"]
    rows = []
    for point in points:
        latency = point["latency_ms"] or {}
        names = ("throughput", "inferences_per_second", "responses_per_second")
        rows.append(
            [
                point["load"]["label"],
                point["requests"],
                point["failed"],
                *(point.get(name) for name in (*names, "tokens_per_second", "goodput")),
                *(latency.get(name) for name in _SHOWN),
                point["client"]["cpu_us_per_request"],
            ]
        )
    return html_table(heads, rows)


def _comparison(comparison: Figures) -> Iterator[str]:
    yield heading(f"A {comparison['a']} against B {comparison['b']}")
    yield html_table(
        ["figure", "A", "B", "A / B", "95 % from", "to"],
        [
            [name, each["a"], each["b"], each["ratio"], each["low"], each["high"]]
            for name, each in comparison["figures"].items()
        ],
    )
    yield charts(
        line_chart(title, Axis("round"), Axis(unit), _by_round(comparison["rounds"], figure))
        for title, unit, figure in (
            ("Throughput by round", "requests/s", "throughput"),
            ("Median latency by round", _MS, "latency_p50_ms"),
        )
    )


def _by_round(rounds: Sequence[Figures], figure: str) -> list[Series]:
    """A line for each server, over the rounds that have the figure."""
    numbered = list(enumerate(rounds, 1))
    return [
        Series(side, [(n, each[key][figure]) for n, each in numbered if figure in each[key]])
        for side, key in (("A", "a"), ("B", "b"))
    ]


def _faults(point: Figures) -> Iterator[str]:
    for text, count in point["errors"].items():
        yield words(f"failed {count} times: {text}", bad=True)
    for problem in point["problems"]:
        yield words(problem, bad=True)
    if point["client"]["bottleneck"]:
        yield words(f"The server may not be the limit: {point['client']['bottleneck']}", bad=True)
    if point["stable"] is False:
        yield words("The last windows did not agree: this is not stable.", bad=True)


def _times(point: Figures) -> str:
    shown = distributions(point)
    if not shown:
        return words("No request was answered.", bad=True)
    names = list(shown[0][1])
    return html_table(
        ["ms", *names], [[title, *(values[name] for name in names)] for title, values in shown]
    )


def _over_loads(points: Sequence[Figures]) -> Iterator[str]:
    timed = [point for point in points if point["latency_ms"]]
    yield line_chart(
        "Latency over throughput",
        Axis("requests/s"),
        Axis(_MS),
        [
            Series(name, [(point["throughput"], point["latency_ms"][name]) for point in timed])
            for name in _SHOWN
        ],
    )
    keys = ("concurrency", "rate")
    key = next((key for key in keys if key in points[0]["load"]), "")
    if key:
        yield line_chart(
            "Throughput",
            Axis(key),
            Axis("requests/s"),
            [Series("answered", [(point["load"][key], point["throughput"]) for point in points])],
        )


def _of_one(point: Figures) -> Iterator[str]:
    windows = point["windows"]
    yield line_chart(
        "Answered over time",
        Axis("s"),
        Axis("requests/s"),
        [Series("answered", [(each["at"], each["throughput"]) for each in windows])],
    )
    yield line_chart(
        "Latency over time",
        Axis("s"),
        Axis(_MS),
        [_over_time(windows, name) for name in ("p50", "p99")],
    )
    yield line_chart(
        "Times up to a share of requests", Axis("%"), Axis(_MS, log=True), _curves(point)
    )
    models = [each for each in point["server"]["models"] if each.get("queue_us") is not None]
    if models:
        yield stacked_bars(
            "Where the time goes in the server",
            "ms a request",
            [each["model"] for each in models],
            [part.replace("_", " ") for part in _PARTS],
            [[(each[f"{part}_us"] or 0.0) / 1e3 for part in _PARTS] for each in models],
        )


def _over_time(windows: Sequence[Figures], name: str) -> Series:
    """A percentile of latency, without the windows in which nothing was answered."""
    values = [(each["at"], each[f"latency_{name}_ms"]) for each in windows]
    return Series(name, [(at, value) for at, value in values if value is not None])


def _curves(point: Figures) -> list[Series]:
    return [
        Series(title, list(enumerate(point["curves"][key])))
        for key, title in TIMES.items()
        if point["curves"].get(key)
    ]
