"""Drawings of the dashboards, from the answers of a real Prometheus to their expressions.

    python -m deploy.observability.pictures http://127.0.0.1:9090 docs/images --minutes 4

They are not screenshots of Grafana: the layout, titles, units and expressions are the dashboards',
the pen is ours.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log2, log10
from pathlib import Path
from typing import Any, Protocol

from deploy.observability.prometheus_api import Line, PrometheusApi
from deploy.observability.questions import DASHBOARDS, filled

_COLUMN, _ROW, _GAP = 50, 26, 6  # pixels
_POINTS = 60
_LEGENDS = 4
_HEAD = 40
_COLOURS = "#3b7d3a #b07d05 #2f6f9f #b3541e #a3262a #5f4b8b #1d7a74 #8a8a00".split()
_STYLE = (
    "text{font:11px sans-serif;fill:#333}.t{font-weight:bold}.n{font-size:24px;fill:#2f6f9f}"
    ".h{font-size:13px;font-weight:bold}.a{fill:#777;font-size:9px}.l{font-size:9px}"
    "rect{fill:#fff;stroke:#ddd}line{stroke:#e8e8e8}polyline{fill:none;stroke-width:1.3}"
)


class Answers(Protocol):
    """What Prometheus answers, as `PrometheusApi` does."""

    def now(self, expression: str) -> list[Line]: ...
    def over_time(self, expression: str, start: float, end: float, step: float) -> list[Line]: ...


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a graph, with the name that its legend gives it."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Box:
    """A place in the picture, in pixels."""

    x: float
    y: float
    width: float
    height: float

    @classmethod
    def of(cls, cells: Mapping[str, int]) -> Box:
        """The place of a panel, without the gap to the next one."""
        return cls(
            cells["x"] * _COLUMN + _GAP / 2,
            cells["y"] * _ROW + _HEAD + _GAP / 2,
            cells["w"] * _COLUMN - _GAP,
            cells["h"] * _ROW - _GAP,
        )


@dataclass(frozen=True, slots=True)
class Span:
    """The time and the servers that are drawn: seconds since 1970, and a regular expression."""

    start: float
    end: float
    servers: str = ".*"


def draw(board: Mapping[str, Any], prometheus: Answers, span: Span) -> str:
    """A dashboard as SVG."""
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in board["panels"]) * _ROW + _HEAD
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * _COLUMN} {height}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{24 * _COLUMN}" height="{height}" style="fill:#f7f7f7"/>',
        _text(10, 25, board["title"], "h"),
    ]
    models = _models(board, prometheus)
    for panel in board["panels"]:
        box = Box.of(panel["gridPos"])
        if panel["type"] == "row":
            parts.append(_text(box.x + 4, box.y + 16, panel["title"], "h"))
        else:
            parts += _panel(panel, box, [*_answers(panel, prometheus, models, span)])
    return "\n".join([*parts, "</svg>", ""])


def _models(board: Mapping[str, Any], prometheus: Answers) -> str:
    """The value of `$model` in Grafana when all are chosen."""
    (variable,) = (one for one in board["templating"]["list"] if one["name"] == "model")
    if "allValue" in variable:
        return str(variable["allValue"])
    metric = variable["query"].removeprefix("label_values(").removesuffix(", model)")
    found = prometheus.now(f"group by (model) ({metric})")
    return "|".join(line.labels["model"] for line in found)


def with_data(board: Mapping[str, Any], prometheus: Answers, span: Span) -> tuple[int, int]:
    """How many expressions of a dashboard have numbers, and how many there are."""
    models = _models(board, prometheus)
    targets = [target for panel in board["panels"] for target in panel.get("targets", ())]
    full = [bool([*_lines(one["expr"], prometheus, models, span)]) for one in targets]
    return sum(full), len(full)


def _answers(
    panel: Mapping[str, Any], prometheus: Answers, models: str, span: Span
) -> Iterator[Series]:
    for target in panel["targets"]:
        for line in _lines(target["expr"], prometheus, models, span):
            yield Series(_legend(target["legendFormat"], line.labels), line.points)


def _lines(expression: str, prometheus: Answers, models: str, span: Span) -> Iterator[Line]:
    asked = filled(expression, "30s", models, span.servers)
    step = (span.end - span.start) / _POINTS
    for line in prometheus.over_time(asked, span.start, span.end, step):
        if any(isfinite(value) for _, value in line.points):
            yield line


def _legend(pattern: str, labels: Mapping[str, str]) -> str:
    for name, value in labels.items():
        pattern = pattern.replace(f"{{{{{name}}}}}", value)
    return pattern


def _panel(panel: Mapping[str, Any], box: Box, series: Sequence[Series]) -> Iterator[str]:
    defaults = panel["fieldConfig"]["defaults"]
    yield f'<rect x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}"/>'
    yield _text(box.x + 6, box.y + 14, panel["title"], "t")
    if panel["type"] == "stat":
        yield from _number(box, series, defaults["unit"])
    else:
        stacking = defaults.get("custom", {}).get("stacking", {}).get("mode")
        lines = _stacked(series) if stacking == "normal" else series
        yield from _graph(box, lines, defaults["unit"], defaults.get("max"))


def _number(box: Box, series: Sequence[Series], unit: str) -> Iterator[str]:
    latest = [value for one in series for _, value in one.points[-1:] if isfinite(value)]
    shown = formatted(latest[0], unit) if latest else "no data"
    yield _text(box.x + 6, box.y + 46, shown, "n")
    if latest:
        plot = Box(box.x, box.y + 54, box.width, box.height - 56)
        yield from _polylines(plot, series, _top(series, unit, None))


def _graph(box: Box, series: Sequence[Series], unit: str, maximum: float | None) -> Iterator[str]:
    plot = Box(box.x + 46, box.y + 24, box.width - 54, box.height - 52)
    top = _top(series, unit, maximum)
    for part in range(3):
        y = plot.y + plot.height * (1 - part / 2)
        yield (
            f'<line x1="{plot.x:g}" y1="{y:g}" x2="{plot.x + plot.width:g}" y2="{y:g}"/>'
            f'<text class="a" text-anchor="end" x="{plot.x - 4:g}" y="{y + 3:g}">'
            f"{escape(formatted(top * part / 2, unit))}</text>"
        )
    if not series:
        yield _text(plot.x + 8, plot.y + plot.height / 2, "no data")
    yield from _polylines(plot, series, top)
    yield from _legends(box, series)


def _legends(box: Box, series: Sequence[Series]) -> Iterator[str]:
    shown = list(series[:_LEGENDS])
    width = (box.width - 12) / max(len(shown), 1)
    for place, one in enumerate(shown):
        more = f" (+{len(series) - _LEGENDS})" if place == _LEGENDS - 1 < len(series) - 1 else ""
        name = one.name[: int(width / 5.5) - len(more)] + more
        x, y = box.x + 6 + place * width, box.y + box.height - 8
        colour = _COLOURS[place % len(_COLOURS)]
        yield f'<text class="l" x="{x:g}" y="{y:g}" style="fill:{colour}">{escape(name)}</text>'


def _polylines(plot: Box, series: Sequence[Series], top: float) -> Iterator[str]:
    times = [at for one in series for at, _ in one.points]
    if not times:
        return
    first, span = min(times), max(max(times) - min(times), 1.0)
    for place, one in enumerate(series):
        points = " ".join(
            f"{plot.x + (at - first) / span * plot.width:.0f},"
            f"{plot.y + plot.height * (1 - min(value / top, 1)):.1f}"
            for at, value in one.points
            if isfinite(value)
        )
        yield f'<polyline points="{points}" stroke="{_COLOURS[place % len(_COLOURS)]}"/>'


def _stacked(series: Sequence[Series]) -> list[Series]:
    """Each series on top of those before it."""
    below: dict[float, float] = {}
    stacked = []
    for one in series:
        points = [(at, below.get(at, 0.0) + value) for at, value in one.points if isfinite(value)]
        below.update(points)
        stacked.append(Series(one.name, points))
    return stacked


def _top(series: Sequence[Series], unit: str, maximum: float | None) -> float:
    """A round number that no value is above."""
    if maximum is not None:
        return maximum
    highest = max((v for one in series for _, v in one.points if isfinite(v)), default=0.0)
    if highest <= 0:
        return 1.0
    if unit == "bytes":
        return 2.0 ** ceil(log2(highest))
    digit = 10.0 ** floor(log10(highest))
    return next((m * digit for m in (1, 2, 5) if m * digit >= highest), 10 * digit)


_SCALES = {
    "s": (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)),
    "µs": (("s", 1e6), ("ms", 1e3), ("µs", 1.0)),
    "bytes": (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0)),
}
_UNITS = {"reqps": "/s", "ops": "/s", "watt": " W", "joule": " J"}


def formatted(value: float, unit: str) -> str:
    """A value with three digits and its unit, as Grafana would show it."""
    if value == 0:
        return "0"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    for name, scale in _SCALES.get(unit, ()):
        if value >= scale:
            return f"{value / scale:.3g} {name}"
    digits = f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    return digits + _UNITS.get(unit, "")


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text class="{style}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m deploy.observability.pictures")
    parser.add_argument("prometheus", help="its URL")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=15)
    options = parser.parse_args()
    end = time.time()
    options.folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(DASHBOARDS.glob("*.json")):
        board = json.loads(path.read_text("utf-8"))
        span = Span(end - 60 * options.minutes, end)
        picture = draw(board, PrometheusApi(options.prometheus), span)
        (options.folder / f"dashboard-{path.stem}.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
