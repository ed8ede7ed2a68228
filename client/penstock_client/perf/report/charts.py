"""Charts as SVG, drawn by matplotlib, which `pip install 'penstock-client[report]'` brings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from itertools import cycle
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MISSING = "charts need the package matplotlib: pip install 'penstock-client[report]'"
_SIZE = (5.6, 3.0)  # inches
_PLACE = (0.15, 0.16, 0.82, 0.73)  # of the axes: left, bottom, width and height, as shares
_LETTER = 0.011  # the width of a letter, as a share
_MOST_DOTS = 64  # on a line
_COLOURS = ("#2563a8", "#c2571a", "#2e7d4f", "#8e3b8a", "#7a6a1f", "#4a5560")
_SETTINGS: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#d9dee3",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "axes.titleweight": "bold",
    "font.size": 9,
    "grid.color": "#d9dee3",
    "legend.frameon": False,
    "svg.fonttype": "none",  # letters stay letters
    "text.parse_math": False,  # a name may have any
}


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


def can_draw() -> bool:
    """Whether there is a library that draws."""
    return find_spec("matplotlib") is not None


def line_chart(title: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """Lines with a dot at each point."""
    drawn = [[point for point in each.points if _is_drawable(point, x, y)] for each in series]

    def draw(axes: Axes) -> None:
        for each, points, colour in zip(series, drawn, cycle(_COLOURS), strict=False):
            axes.plot(
                [point[0] for point in points],
                [point[1] for point in points],
                linestyle="none" if each.scattered else "solid",
                marker="o" if each.scattered or len(points) <= _MOST_DOTS else "none",
                markersize=4,
                color=colour,
                label=each.name,
            )
        axes.set(xlabel=x.label, ylabel=y.label)
        axes.set_xscale("log") if x.log else axes.set_xlim(left=0)
        axes.set_yscale("log") if y.log else axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(axis="y")
        if len(series) > 1:
            axes.legend()

    return _drawn(title, draw if any(drawn) else _say_nothing)


def _say_nothing(axes: Axes) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, "nothing was measured", ha="center")


def stacked_bars(
    title: str,
    label: str,
    names: Sequence[str],
    parts: Sequence[str],
    rows: Sequence[Sequence[float]],
) -> str:
    """A bar for each name, with a part for each of `parts`, from left to right."""

    def draw(axes: Axes) -> None:
        places = range(len(names))
        begins = [0.0] * len(names)
        for number, (part, colour) in enumerate(zip(parts, cycle(_COLOURS), strict=False)):
            values = [row[number] for row in rows]
            axes.barh(places, values, 0.7, begins, color=colour, label=part)
            begins = [begin + value for begin, value in zip(begins, values, strict=True)]
        left = min(0.45, _PLACE[0] + _LETTER * max(map(len, names), default=0))
        axes.set_position((left, _PLACE[1], _PLACE[0] + _PLACE[2] - left, _PLACE[3]))
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.set_xlabel(label)
        axes.legend()

    return _drawn(title, draw)


def _is_drawable(point: tuple[float, float], x: Axis, y: Axis) -> bool:
    return all(map(isfinite, point)) and (point[0] > 0 or not x.log) and (point[1] > 0 or not y.log)


def _drawn(title: str, draw: Callable[[Axes], None]) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    with warnings.catch_warnings(), matplotlib.rc_context(_SETTINGS):
        warnings.simplefilter("ignore")  # of letters that it has no font for: a browser has one
        figure = Figure(_SIZE)
        axes = figure.add_axes(_PLACE)
        axes.set_title(title, y=1.02)  # else it is measured what is above the axes
        draw(axes)
        axes.minorticks_off()
        text = StringIO()
        unsaid = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(text, format="svg", metadata=unsaid)
    return text.getvalue().partition("<svg")[2].join(("<svg", ""))
