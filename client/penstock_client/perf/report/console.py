"""Results and progress on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

from penstock_client.perf.measure import Progress
from penstock_client.perf.report.figures import Figures, distributions

_BAR = 24


class Ticker:
    """The line of progress on a terminal; elsewhere nothing."""

    def __init__(self, stream: TextIO, quiet: bool) -> None:
        self._stream = stream
        self._shown = not quiet and stream.isatty()

    def __call__(self, progress: Progress, title: str = "") -> None:
        """Show how far it is; `title` stands before the load."""
        if not self._shown:
            return
        share = min(1.0, progress.seconds / progress.of) if progress.of < 1e5 else 0.0
        bar = ("█" * round(share * _BAR)).ljust(_BAR, "·")
        failed = f", {progress.failed} failed" if progress.failed else ""
        waiting = f", {progress.waiting} waiting" if progress.waiting else ""
        self._stream.write(
            f"\r\x1b[K{title}{progress.point.label}  {bar} {progress.seconds:.0f} s"
            f"  {progress.answered} answered{failed}, {progress.in_flight} under way{waiting},"
            f" {progress.rate:.0f}/s"
        )
        self._stream.flush()

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def lines(figures: Figures) -> Iterator[str]:
    """The figures of one measurement, in lines."""
    failed = f", {figures['failed']} failed" if figures["failed"] else ""
    cut_off = f", {figures['cut_off']} still under way" if figures["cut_off"] else ""
    yield ""
    yield (
        f"{figures['load']['label']}: {figures['requests']} requests in {figures['seconds']:.1f} s"
        f"{failed}{cut_off}"
    )
    yield from _rates(figures)
    yield from _table(figures)
    yield from _server(figures["server"])
    yield from _client(figures)
    for text, count in figures["errors"].items():
        yield f"  failed {count} times: {text}"
    yield from (f"  {problem}" for problem in figures["problems"])


def _rates(figures: Figures) -> Iterator[str]:
    rates = [f"{figures['throughput']:.1f} requests/s"]
    if figures["inferences_per_second"] != figures["throughput"]:
        rates.append(f"{figures['inferences_per_second']:.1f} inferences/s")
    if "offered" in figures:
        rates[0] += f" of {figures['offered']:.1f} asked for"
    if "responses_per_second" in figures:
        rates.append(f"{figures['responses_per_second']:.1f} responses/s")
        rates.append(f"{figures['responses_per_request']:.1f} responses a request")
    if figures.get("tokens_per_second"):
        rates.append(f"{figures['tokens_per_second']:.1f} tokens/s")
        rates.append(f"{figures['tokens_per_request']:.1f} tokens a request")
    if "goodput" in figures:
        rates.append(f"{figures['goodput']:.1f} good requests/s")
    stable = {True: ", stable", False: ", NOT stable", None: ""}[figures["stable"]]
    yield f"  {', '.join(rates)}{stable}"


def _table(figures: Figures) -> Iterator[str]:
    shown = distributions(figures)
    if not shown:
        return
    columns = [name for name in shown[0][1] if name not in ("std", "min")]
    yield "  " + "ms".ljust(18) + "".join(name.rjust(10) for name in columns)
    for title, values in shown:
        yield "  " + title.ljust(18) + "".join(_number(values[name]).rjust(10) for name in columns)


def _server(server: Figures) -> Iterator[str]:
    parts = ("queue_us", "compute_input_us", "compute_infer_us", "compute_output_us")
    for model in server["models"]:
        times = [
            f"{part.removesuffix('_us').replace('_', ' ')} {model[part] / 1e3:.3f}"
            for part in parts
            if model.get(part) is not None
        ]
        batch = f", batches of {model['batch']:.1f}" if model.get("batch") else ""
        yield (
            f"  server: {model['model']}: {model['requests']:.0f} requests,"
            f" {model['executions']:.0f} executions{batch}; ms: {', '.join(times)}"
        )
    if server.get("cpu_us_per_request") is not None:
        yield (
            f"  server: {server['cpu_us_per_request']:.0f} µs of CPU a request,"
            f" {server['cpu_cores']:.2f} cores"
        )


def _client(figures: Figures) -> Iterator[str]:
    client = figures["client"]
    if client["cpu_us_per_request"] is not None:
        yield (
            f"  client: {client['cpu_us_per_request']:.0f} µs of CPU a request,"
            f" {client['busy']:.0%} of a core in the busiest of {client['processes']}"
        )
    if client["bottleneck"]:
        yield f"  THE SERVER MAY NOT BE THE LIMIT: {client['bottleneck']}"


def table(rows: Sequence[Figures]) -> Iterator[str]:
    """One line for each load of several."""
    heads = ["load", "requests/s", "p50 ms", "p95 ms", "p99 ms", "failed"]
    cells = [heads]
    for row in rows:
        latency = row["latency_ms"] or {}
        values = [latency.get(name) for name in ("p50", "p95", "p99")]
        cells.append(
            [
                row["load"]["label"],
                f"{row['throughput']:.1f}",
                *map(_number, values),
                str(row["failed"]),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    yield ""
    for line in cells:
        first, *others = (c.rjust(w) for c, w in zip(line, widths, strict=True))
        yield "  " + first.strip().ljust(widths[0]) + "".join("  " + each for each in others)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}" if value >= 1 else f"{value:.3f}"


def comparison_table(comparison: Figures) -> Iterator[str]:
    """The figures of two servers, and their ratios."""
    yield ""
    yield f"A {comparison['a']}, B {comparison['b']}, {len(comparison['rounds'])} rounds"
    cells = [["", "A", "B", "A / B", "95 % confidence"]]
    for name, each in comparison["figures"].items():
        between = "-" if each["low"] is None else f"{each['low']:.3f} to {each['high']:.3f}"
        ratio = f"{each['ratio']:.3f}"
        cells.append([name, _number(each["a"]), _number(each["b"]), ratio, between])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *others in cells:
        rest = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield f"  {first.ljust(widths[0])}  {'  '.join(rest)}"
