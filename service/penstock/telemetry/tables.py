"""ASCII tables for the start-up report."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format `rows` under `head`; a column is as wide as its widest cell.

    A cell may hold several lines. Every row has as many cells as `head`.
    """
    lined = [_lines(row) for row in (head, *rows)]
    widths = [
        max(len(line) for line in column)
        for column in zip(*(line for row in lined for line in row), strict=True)
    ]
    border = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    first, *others = ["\n".join(_drawn(line, widths) for line in row) for row in lined]
    return "\n".join([border, first, border, *others, border])


def _lines(row: Sequence[str]) -> list[list[str]]:
    """The lines of a row; each line has one piece per cell."""
    cells = [cell.split("\n") for cell in row]
    height = max(len(cell) for cell in cells)
    return [[cell[i] if i < len(cell) else "" for cell in cells] for i in range(height)]


def _drawn(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = (f" {piece:<{width}} " for piece, width in zip(line, widths, strict=True))
    return "|" + "|".join(cells) + "|"
