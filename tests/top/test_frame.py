"""Frames and printed tables of a fixed server, compared with text that was looked at.

`python -m top.test_frame`, with `tests` as PYTHONPATH, writes the texts anew.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from penstock_client.reading.address import Address
from penstock_client.reading.counters import ModelKey
from penstock_client.reading.kserve import ServerAnswers
from penstock_client.reading.views import ModelEntry
from penstock_client.top.columns import COLUMNS, fitting
from penstock_client.top.details import grouped
from penstock_client.top.frame import make_frame
from penstock_client.top.model_view import BatchView
from penstock_client.top.navigation import Navigation
from penstock_client.top.options import Options
from penstock_client.top.report import WIDE, print_table
from penstock_client.top.view import View, make_view
from top.readings_of import NO_ANSWERS, NO_PAGE, answer_readings, page_readings

GOLDEN = Path(__file__).parent / "golden"
NOW = 107.0
BERT = Navigation(selected=ModelKey("bert", "1"), opened=True)
LLAMA = Navigation(selected=ModelKey("llama", "2"), opened=True)


def _view() -> View:
    return make_view(page_readings(), answer_readings())


def _gone() -> View:
    refused = "connection refused"
    return make_view(
        page_readings().failed(refused, 103.0), answer_readings().failed(refused, 103.0)
    )


def _text(content: RenderableType, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(content)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _frame(view: View, navigation: Navigation, width: int, height: int) -> str:
    frame = make_frame(
        view, navigation, "localhost:8002", 1.0, NOW, (width, height), "waiting for http for 3 s"
    )
    return _text(frame.content, width)


def _printed() -> str:
    options = Options(Address("localhost", 8002), Address("localhost", 8000))
    console = Console(width=WIDE, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        print_table(_view(), options, console)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


FRAMES: Mapping[str, Callable[[], str]] = {
    "table": lambda: _frame(_view(), Navigation(sort="latency"), 130, 30),
    "narrow": lambda: _frame(_view(), Navigation(), 80, 24),
    "encoder": lambda: _frame(_view(), BERT, 130, 40),
    "language_model": lambda: _frame(_view(), LLAMA, 80, 40),
    "no_answer": lambda: _frame(_gone(), Navigation(), 100, 24),
    "printed": _printed,
}


@pytest.mark.parametrize("name", FRAMES)
def test_frame_is_as_it_was_looked_at(name: str) -> None:
    assert FRAMES[name]() == (GOLDEN / f"{name}.txt").read_text("utf-8")


def _many(count: int) -> View:
    keys = [ModelKey(f"m{number:03}", "1") for number in range(count)]
    states = {key: ModelEntry(*key, "READY") for key in keys}
    told = ServerAnswers(True, states=states)
    return make_view(NO_PAGE, NO_ANSWERS.succeeded(told, 0.0))


@pytest.mark.parametrize("height", [4, 10, 24, 60])
def test_a_frame_fits_the_terminal_with_the_selected_model_in_it(height: int) -> None:
    navigation = Navigation(selected=ModelKey("m150", "1"))
    lines = _frame(_many(200), navigation, 100, height).splitlines()
    assert any(line.startswith("m150 ") for line in lines)
    assert len(lines) <= max(height, 8)


@pytest.mark.parametrize("width", [10, 40, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for navigation in (Navigation(), BERT):
        lines = _frame(_view(), navigation, width, 40).splitlines()
        assert max(map(len, lines)) <= width


def test_columns_go_by_rank_where_there_is_no_room() -> None:
    assert fitting(COLUMNS, None) == list(COLUMNS)
    few = [column.title for column in fitting(COLUMNS, 40)]
    assert few == ["req/s", "queue", "ms"]


def test_many_batch_sizes_are_grouped() -> None:
    few = [BatchView(rows, 1.0, None, 0.5) for rows in (1, 3, 16)]
    assert [rows for rows, _ in grouped(few)] == ["1", "3", "16"]
    many = [BatchView(rows, 2.0, 1.0, 0.5) for rows in range(1, 18)]
    found = {rows: (batch.executions, batch.rate, batch.compute) for rows, batch in grouped(many)}
    assert found == {
        "1": (2, 1, 0.5),
        "2": (2, 1, 0.5),
        "3-4": (4, 2, 0.5),
        "5-8": (8, 4, 0.5),
        "9-16": (16, 8, 0.5),
        "17-32": (2, 1, 0.5),
    }


def test_a_name_cannot_draw_on_the_terminal() -> None:
    told = ServerAnswers(
        True,
        states={ModelKey("\x1b[2Jevil\n", "1"): ModelEntry("\x1b[2Jevil\n", "1", "\x1b]0;x\x07")},
    )
    view = make_view(NO_PAGE, NO_ANSWERS.succeeded(told, 0.0))
    for navigation in (Navigation(), Navigation(opened=True)):
        assert "\x1b" not in _frame(view, navigation, 100, 24)


if __name__ == "__main__":
    for name, frame in FRAMES.items():
        (GOLDEN / f"{name}.txt").write_text(frame(), "utf-8")
