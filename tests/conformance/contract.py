"""How much of the contract has a test: which rows name one, by area, written as a table.

    python tests/conformance/contract.py           write docs/contract-coverage.md
    python tests/conformance/contract.py --rows    print each row with the tests that prove it

A test names the rows that it proves with `@pytest.mark.contract("G-08", ...)`. The rows themselves
are in `contract_rows.json`: by area its title and the priority of each row.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = Path(__file__).with_name("contract_rows.json")
TABLE = ROOT / "docs" / "contract-coverage.md"
PRIORITIES = ("P0", "P1", "P2")

_HEAD = """\
# Contract coverage

What Triton does is written down as {total} rows in {areas} areas; a row is covered when at least
one test is marked with its id. P0 is the core, P1 what users expect, P2 rare. Made by
`tests/conformance/contract.py`; a test checks that it is up to date.

| area | P0 | P1 | P2 | all |
|---|---:|---:|---:|---:|
"""


@dataclass(frozen=True, slots=True)
class Area:
    """One area of the contract: its title and the priority of each of its rows."""

    title: str
    rows: Mapping[str, str]


def areas() -> list[Area]:
    """The contract, in its own order."""
    return [Area(**area) for area in json.loads(ROWS.read_text())]


def marks(directory: Path = ROOT / "tests") -> dict[str, list[str]]:
    """The tests that name each row, by row id."""
    found: dict[str, list[str]] = {}
    for path in sorted(directory.rglob("test_*.py")):
        for test, row in _marks_of(ast.parse(path.read_text())):
            found.setdefault(row, []).append(f"{path.relative_to(directory)}::{test}")
    return found


def table(contract: list[Area], covered: Mapping[str, list[str]]) -> str:
    """The document."""
    total = Area("**all**", {row: p for area in contract for row, p in area.rows.items()})
    lines = [_line(area, covered) for area in [*contract, total]]
    return _HEAD.format(total=len(total.rows), areas=len(contract)) + "\n".join(lines) + "\n"


def _line(area: Area, covered: Mapping[str, list[str]]) -> str:
    cells = [_count([row for row, p in area.rows.items() if p == q], covered) for q in PRIORITIES]
    return " | ".join(["| " + area.title, *cells, _count(list(area.rows), covered) + " |"])


def _count(rows: list[str], covered: Mapping[str, list[str]]) -> str:
    return f"{sum(row in covered for row in rows)} of {len(rows)}" if rows else ""


def _marks_of(tree: ast.AST, owner: str = "all") -> Iterator[tuple[str, str]]:
    """Each test with each row that a mark on it names; a mark on the module is on `all` of it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _marks_of(node, node.name if owner == "all" else f"{owner}.{node.name}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.contract":
            yield from ((owner, ast.literal_eval(row)) for row in node.args)
        else:
            yield from _marks_of(node, owner)


def main() -> None:
    parser = argparse.ArgumentParser(description="How much of the contract has a test.")
    parser.add_argument("--rows", action="store_true", help="print each row with its tests")
    if not parser.parse_args().rows:
        TABLE.write_text(table(areas(), marks()))
        return
    covered = marks()
    for area in areas():
        print(area.title)
        for row, priority in area.rows.items():
            print(f"  {row:7} {priority}  {', '.join(covered.get(row, ['-']))}")


if __name__ == "__main__":
    main()
