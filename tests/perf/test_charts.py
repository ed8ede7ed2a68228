"""Charts of the report: whatever the numbers, there is a picture."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.examples import examples
from penstock_client.perf.report.charts import Axis, Series, line_chart, stacked_bars
from penstock_client.perf.report.page import charts

_NUMBERS = st.floats(0, 1e12, allow_subnormal=False)
_POINTS = st.lists(st.tuples(_NUMBERS, _NUMBERS), max_size=70)
_SVG = "{http://www.w3.org/2000/svg}"


def _texts(drawn: str) -> Iterator[str]:
    for element in ElementTree.fromstring(drawn).iter(f"{_SVG}text"):
        yield "".join(element.itertext())


@settings(max_examples=examples(30))
@given(
    lines=st.lists(_POINTS, max_size=3),
    x_log=st.booleans(),
    y_log=st.booleans(),
    name=st.text('<&"x$\\é語', min_size=1),
)
def test_lines_are_drawn_whatever_the_numbers(
    lines: list[list[tuple[float, float]]], x_log: bool, y_log: bool, name: str
) -> None:
    series = [Series(name, points) for points in lines]
    assert name in _texts(line_chart(name, Axis("s", x_log), Axis("ms", y_log), series))


@settings(max_examples=examples(20))
@given(rows=st.lists(st.lists(_NUMBERS, min_size=2, max_size=2), max_size=5))
def test_bars_have_their_names(rows: list[list[float]]) -> None:
    names = [f"model {number}" for number in range(len(rows))]
    drawn = stacked_bars("parts", "ms", names, ["a", "b"], rows)
    assert {*names, "a", "b", "parts", "ms"} <= {*_texts(drawn)}


def test_without_a_point_nothing_was_measured() -> None:
    drawn = line_chart("t", Axis("x"), Axis("y", log=True), [Series("p50", [(1.0, 0.0)])])
    assert "nothing was measured" in _texts(drawn)


def test_a_page_without_the_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install &#x27;penstock-client[report]&#x27;" in charts([])
