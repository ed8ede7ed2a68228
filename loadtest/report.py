"""Rows of figures: printed as a table, written as JSON."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from loadtest.places import results_file

Row = Mapping[str, float | str]


def arguments(description: str | None, *, timed: bool = True) -> argparse.ArgumentParser:
    """The options that scenarios have; those that count their calls are not `timed`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=3, help="runs of which the median counts")
    if timed:
        parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement")
    parser.add_argument("--json", type=results_file, help="where to write the figures")
    return parser


def median_rows(rounds: int, measure: Callable[[], Sequence[Row]]) -> list[Row]:
    """Measure `rounds` times, each time everything, and take the median of every figure."""
    runs = [measure() for _ in range(rounds)]
    return [_median(rows) for rows in zip(*runs, strict=True)]


def show(title: str, rows: Iterable[Row], path: Path | None) -> None:
    """Print the rows, and write them to `path`."""
    rows = list(rows)
    names = list(rows[0])
    cells = [[_text(row[name]) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    print(f"\n{title}")
    for line in [names, *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    if path is not None:
        content = {"title": title, "machine": platform.platform(), "rows": rows}
        path.write_text(json.dumps(content, indent=1) + "\n")


def _median(rows: Sequence[Row]) -> Row:
    return {
        name: value if isinstance(value, str) else statistics.median(float(r[name]) for r in rows)
        for name, value in rows[0].items()
    }


def _text(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}"
