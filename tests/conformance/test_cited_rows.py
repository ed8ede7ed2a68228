"""Contract ids that the code cites stand in docs/reference/contract.md, in our own words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.contract import ROOT, TABLE, areas

_PAGE = ROOT / "docs" / "reference" / "contract.md"
_ROWS = {row for area in areas() for row in area.rows}
_CITED = re.compile(r"\b([A-Z]{1,3}2?)-(\d+)\b(?:\s+to\s+\1-(\d+)\b)?")
"""An id, or a range such as `H-01 to H-07`, which cites what lies between as well."""


def _cited(text: str) -> Iterator[str]:
    prefixes = {row.rpartition("-")[0] for row in _ROWS}
    for prefix, first, last in _CITED.findall(text):
        if prefix in prefixes:
            yield from (f"{prefix}-{n:02}" for n in range(int(first), int(last or first) + 1))


def _sources() -> list[Path]:
    return [path for room in ("service", "backends") for path in (ROOT / room).rglob("*.py")]


def _explained() -> list[str]:
    return re.findall(r"^\| ([A-Z]+2?-\d+) \| .+ \|$", _PAGE.read_text(), re.MULTILINE)


def test_every_cited_row_is_explained() -> None:
    pages = set((ROOT / "docs").rglob("*.md")) - {_PAGE, TABLE}
    cited = {
        row: str(path.relative_to(ROOT))
        for path in [*_sources(), *pages]
        for row in _cited(path.read_text())
    }
    missing = {row: path for row, path in cited.items() if row not in _explained()}
    assert missing == {}, "add a line for each to docs/reference/contract.md"


def test_explained_rows_are_those_of_the_contract_in_its_order() -> None:
    explained = _explained()
    assert explained == [row for area in areas() for row in area.rows if row in explained]


def test_page_names_the_area_of_each_prefix() -> None:
    prefixes = [next(iter(area.rows)).rpartition("-")[0] for area in areas()]
    names = re.findall(r"^\| `(\w+)` \| \[?([^\]|]+?)\]?(?:\(#.*\))? \|$", _PAGE.read_text(), re.M)
    assert names == list(zip(prefixes, [area.title for area in areas()], strict=True))


@pytest.mark.parametrize("room", ["service", "backends", "tests"])
def test_areas_are_called_by_name(room: str) -> None:
    """A letter for an area would be read as the prefix of a row."""
    lettered = re.compile(r"\bareas? [A-Z]{1,2}\d?\b")
    sources = (ROOT / room).rglob("*.py")
    assert [path for path in sources if lettered.search(path.read_text())] == []
