"""Drawings of dashboards from what Prometheus answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import nan
from pathlib import Path
from xml.etree import ElementTree

import pytest

from deploy.observability.dashboards.written import FOLDER
from deploy.observability.pictures import Span, draw, formatted, with_data
from deploy.observability.prometheus_api import Line

_SVG = "{http://www.w3.org/2000/svg}"


class _Answers:
    """The same lines for every expression; keeps what was asked."""

    def __init__(self, *lines: Line) -> None:
        self.lines = lines
        self.asked: list[str] = []

    def now(self, expression: str) -> list[Line]:
        self.asked.append(expression)
        return [Line({"model": name}, [(0.0, 1.0)]) for name in ("a", "b")]

    def over_time(self, expression: str, start: float, end: float, step: float) -> list[Line]:
        self.asked.append(expression)
        return list(self.lines)


def _drawn(path: Path, answers: _Answers) -> ElementTree.Element:
    board = json.loads(path.read_text("utf-8"))
    return ElementTree.fromstring(draw(board, answers, Span(0.0, 60.0)))


def _texts(picture: ElementTree.Element) -> Sequence[str | None]:
    return [text.text for text in picture.iter(f"{_SVG}text")]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_each_panel_is_drawn_with_its_series(path: Path) -> None:
    board = json.loads(path.read_text("utf-8"))
    line = Line({"model": "<m>"}, [(0.0, 1.0), (30.0, nan), (60.0, 3.0)])
    picture = _drawn(path, _Answers(line))
    assert {panel["title"] for panel in board["panels"]} <= set(_texts(picture))
    expressions = sum(len(panel.get("targets", [])) for panel in board["panels"])
    assert len(list(picture.iter(f"{_SVG}polyline"))) == expressions


def test_panel_without_a_series_says_so() -> None:
    picture = _drawn(FOLDER / "gpu.json", _Answers(Line({}, [(0.0, nan)])))
    assert _texts(picture).count("no data") == 12


def test_models_of_a_dashboard_take_the_place_of_all() -> None:
    answers = _Answers()
    _drawn(FOLDER / "llm.json", answers)
    assert any('model=~"a|b"' in expression for expression in answers.asked)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.0, "bytes", "0"),
        (0.251, "percentunit", "25.1 %"),
        (1536.0, "µs", "1.54 ms"),
        (0.0005, "s", "500 µs"),
        (3.0 * 2**30, "bytes", "3 GiB"),
        (12.0, "reqps", "12/s"),
        (91291.4, "joule", "91291 J"),
    ],
)
def test_values_are_shown_with_their_units(value: float, unit: str, shown: str) -> None:
    assert formatted(value, unit) == shown


def test_servers_that_are_chosen_take_the_place_of_all() -> None:
    answers = _Answers(Line({}, [(0.0, 1.0)]))
    board = json.loads((FOLDER / "server.json").read_text("utf-8"))
    chosen = Span(0.0, 60.0, "one:8002|other:8002")
    full, asked = with_data(board, answers, chosen)
    assert full == asked == sum(len(panel.get("targets", [])) for panel in board["panels"])
    assert any('instance=~"one:8002|other:8002"' in question for question in answers.asked)
    assert not any('instance=~".*"' in question for question in answers.asked)


def test_expressions_without_a_number_are_not_counted() -> None:
    board = json.loads((FOLDER / "server.json").read_text("utf-8"))
    full, _ = with_data(board, _Answers(Line({}, [(0.0, nan)])), Span(0.0, 60.0))
    assert full == 0
