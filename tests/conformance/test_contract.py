"""The table of contract coverage is up to date, and what it counts exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.contract import PRIORITIES, ROOT, TABLE, Area, areas, marks, table

_CONTRACT = ROOT.parent / "shared" / "spec" / "triton-features.md"


def test_table_is_up_to_date() -> None:
    remedy = "run: python tests/conformance/contract.py"
    assert TABLE.read_text() == table(areas(), marks()), remedy


def test_every_mark_names_a_row() -> None:
    known = {row for area in areas() for row in area.rows}
    assert {row: tests for row, tests in marks().items() if row not in known} == {}


def test_a_mark_counts_for_each_of_its_rows(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "pytestmark = pytest.mark.contract('A-01')\n"
        "@pytest.mark.contract('A-02', 'A-03')\n"
        "def test_one() -> None: ...\n"
        "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.contract('A-03'))])\n"
        "async def test_two(x: int) -> None: ...\n"
    )
    assert marks(tmp_path) == {
        "A-01": ["test_it.py::all"],
        "A-02": ["test_it.py::test_one"],
        "A-03": ["test_it.py::test_one", "test_it.py::test_two"],
    }


def test_table_counts_rows_by_priority() -> None:
    contract = [Area("A", {"A-01": "P0", "A-02": "P0", "A-03": "P2"}), Area("B", {"B-01": "P1"})]
    lines = table(contract, {"A-02": ["t"], "B-01": ["t"]}).splitlines()
    assert lines[-3:] == [
        "| A | 1 of 2 |  | 0 of 1 | 1 of 3 |",
        "| B |  | 1 of 1 |  | 1 of 1 |",
        "| **all** | 1 of 2 | 1 of 1 | 0 of 1 | 2 of 4 |",
    ]


def test_rows_are_those_of_the_contract() -> None:
    if not _CONTRACT.is_file():
        pytest.skip(f"no contract in {_CONTRACT}")
    written = re.findall(r"^\| ([A-Z0-9]+-\d+) \|.*\| (P\d)[^|]*\|$", _CONTRACT.read_text(), re.M)
    kept = [(row, priority) for area in areas() for row, priority in area.rows.items()]
    assert kept == written
    assert {priority for _, priority in kept} == set(PRIORITIES)
