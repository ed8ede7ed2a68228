"""Charts of the report: whatever the numbers, what is drawn lies on the page."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from penstock_client.perf.report.svg import Axis, Series, line_chart, stacked_bars

_NUMBERS = st.floats(0, 1e12, allow_subnormal=False)
_POINTS = st.lists(st.tuples(_NUMBERS, _NUMBERS), max_size=70)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@given(
    lines=st.lists(_POINTS, max_size=3),
    x_log=st.booleans(),
    y_log=st.booleans(),
    name=st.text('<&"x'),
)
def test_lines_lie_within_the_page(
    lines: list[list[tuple[float, float]]], x_log: bool, y_log: bool, name: str
) -> None:
    series = [Series(name, points) for points in lines]
    drawn = line_chart(name, Axis(name, x_log), Axis("ms", y_log), series)
    for line in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}polyline"):
        places = [float(each) for each in _NUMBER.findall(line.attrib["points"])]
        assert all(0 <= x <= 560 for x in places[::2])
        assert all(0 <= y <= 300 for y in places[1::2])


def test_scattered_points_are_dots_without_a_line() -> None:
    points = [(float(number), 1.0) for number in range(100)]
    drawn = line_chart("t", Axis("x"), Axis("y"), [Series("others", points, scattered=True)])
    page = ElementTree.fromstring(drawn)
    assert len(list(page.iter("{http://www.w3.org/2000/svg}circle"))) == 100
    assert not list(page.iter("{http://www.w3.org/2000/svg}polyline"))


@given(rows=st.lists(st.lists(_NUMBERS, min_size=2, max_size=2), max_size=5))
def test_bars_lie_within_the_page(rows: list[list[float]]) -> None:
    names = [f"model {number}" for number in range(len(rows))]
    drawn = stacked_bars("parts", "ms", names, ["a", "b"], rows)
    for bar in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}rect"):
        assert float(bar.attrib["x"]) + float(bar.attrib["width"]) <= 560.1
