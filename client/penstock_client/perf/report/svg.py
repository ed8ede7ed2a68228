"""Charts as SVG, drawn without a library: lines over an axis of numbers, and bars of parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import ceil, floor, isfinite, log10

_WIDTH, _HEIGHT = 560, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 34, 46
_THICKEST = 40
_COLOURS = ("#2563a8", "#c2571a", "#2e7d4f", "#8e3b8a", "#7a6a1f", "#4a5560")
_STYLE = "font-family:system-ui,sans-serif;font-size:12px"


@dataclass(frozen=True, slots=True)
class Series:
    """A line: its name, and points of x and y; `scattered` ones are not joined."""

    name: str
    points: Sequence[tuple[float, float]]
    scattered: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis and its label; from 0 on, unless `log`."""

    label: str
    log: bool = False


def line_chart(title: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """Lines with a dot at each point, whose numbers show under the mouse."""
    shown = [replace(each, points=_drawable(each.points, x, y)) for each in series]
    points = [point for each in shown for point in each.points]
    if not points:
        return _chart(title, [_text(_WIDTH / 2, _HEIGHT / 2, "nothing was measured", "middle")])
    across = _Scale([p[0] for p in points], x.log, _LEFT, _WIDTH - _RIGHT)
    up = _Scale([p[1] for p in points], y.log, _HEIGHT - _BOTTOM, _TOP)
    parts = [*_axes(across, up, x.label, y.label)]
    for number, each in enumerate(shown):
        parts += _line(each, across, up, _COLOURS[number % len(_COLOURS)])
    return _chart(title, [*parts, *_legend([each.name for each in shown])])


def stacked_bars(
    title: str,
    label: str,
    names: Sequence[str],
    parts: Sequence[str],
    rows: Sequence[Sequence[float]],
) -> str:
    """A bar for each name, with a part for each of `parts`, from left to right."""
    total = max((sum(row) for row in rows), default=0.0)
    left = 8 + max((7 * len(name) for name in names), default=0)
    across = _Scale([0.0, total], False, min(left, 240), _WIDTH - _RIGHT)
    height = (_HEIGHT - _TOP - _BOTTOM) / max(1, len(rows))
    thick = min(_THICKEST, height * 0.7)
    drawn = [_text(_WIDTH / 2, _HEIGHT - 10, label, "middle")]
    drawn += [
        _text(across(at), _HEIGHT - _BOTTOM + 16, _number(at), "middle") for at in across.ticks()
    ]
    for row, (name, values) in enumerate(zip(names, rows, strict=True)):
        top, begin = _TOP + row * height, 0.0
        drawn.append(_text(across.low - 6, top + height / 2 + 4, name, "end"))
        for number, value in enumerate(values):
            title_text = f"{name}, {parts[number]}: {_number(value)}".replace(", :", ":")
            drawn.append(
                f'<rect x="{across(begin):.1f}" y="{top + (height - thick) / 2:.1f}"'
                f' width="{max(0.0, across(begin + value) - across(begin)):.1f}"'
                f' height="{thick:.1f}" fill="{_COLOURS[number % len(_COLOURS)]}">'
                f"<title>{escape(title_text)}</title></rect>"
            )
            begin += value
    return _chart(title, [*drawn, *_legend([part for part in parts if part])])


class _Scale:
    """Numbers to places on the page."""

    def __init__(self, values: Iterable[float], log: bool, low: float, high: float) -> None:
        found = list(values)
        self._log = log
        self.low, self._high = low, high
        if log:
            self.begin, self.end = floor(log10(min(found))), ceil(log10(max(found)))
            self.end = max(self.end, self.begin + 1)
        else:
            self.step = _step(max(0.0, *found) if len(found) > 1 else max(0.0, found[0]))
            self.begin, self.end = 0, max(1, ceil(max(found) / self.step - 1e-9))

    def __call__(self, value: float) -> float:
        place = log10(value) if self._log else value / self.step
        return self.low + (place - self.begin) / (self.end - self.begin) * (self._high - self.low)

    def ticks(self) -> list[float]:
        """Round numbers along the axis."""
        places = range(self.begin, self.end + 1)
        return [10.0**place if self._log else place * self.step for place in places]


def _step(largest: float) -> float:
    """A round number that goes four to eight times into the largest."""
    if largest <= 0:
        return 1.0
    unit = 10.0 ** floor(log10(largest))
    return next(unit * part for part in (0.2, 0.25, 0.5, 1.0, 2.0) if largest / (unit * part) <= 8)


def _drawable(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> list[tuple[float, float]]:
    return [
        point
        for point in points
        if all(map(isfinite, point)) and (point[0] > 0 or not x.log) and (point[1] > 0 or not y.log)
    ]


def _axes(across: _Scale, up: _Scale, x_label: str, y_label: str) -> Iterable[str]:
    for at in across.ticks():
        yield _text(across(at), _HEIGHT - _BOTTOM + 16, _number(at), "middle")
    for at in up.ticks():
        yield (
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{up(at):.1f}" y2="{up(at):.1f}"'
            ' stroke="#d9dee3"/>'
        )
        yield _text(_LEFT - 6, up(at) + 4, _number(at), "end")
    yield _text(_WIDTH / 2, _HEIGHT - 10, x_label, "middle")
    middle = _HEIGHT / 2
    yield (
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})"'
        f' fill="#333">{escape(y_label)}</text>'
    )


def _line(series: Series, across: _Scale, up: _Scale, colour: str) -> Iterable[str]:
    places = [(across(x), up(y)) for x, y in series.points]
    if not series.scattered:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        if len(places) > 64:
            return
    for (x, y), (left, top) in zip(series.points, places, strict=True):
        words = escape(f"{series.name}: {_number(x)}, {_number(y)}")
        yield (
            f'<circle cx="{left:.1f}" cy="{top:.1f}" r="3" fill="{colour}">'
            f"<title>{words}</title></circle>"
        )


def _legend(names: Sequence[str]) -> Iterable[str]:
    left = float(_LEFT)
    for number, name in enumerate(names if len(names) > 1 else ()):
        colour = _COLOURS[number % len(_COLOURS)]
        yield f'<rect x="{left:.0f}" y="22" width="10" height="4" fill="{colour}"/>'
        yield _text(left + 14, 28, name, "start")
        left += 30 + 7 * len(name)


def _chart(title: str, parts: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" xmlns="http://www.w3.org/2000/svg" role="img"'
        f' style="{_STYLE}"><title>{escape(title)}</title>'
        f'<text x="{_LEFT}" y="14" font-weight="600" fill="#111">{escape(title)}</text>'
        f"{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333">{escape(text)}</text>'


def _number(value: float) -> str:
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.2g}"
    return f"{value:.4g}"
