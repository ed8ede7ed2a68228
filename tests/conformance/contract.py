"""Contract coverage: a table, by area, of the rows that tests which ran assert.

    python tests/conformance/contract.py           write docs/reference/contract-coverage.md
    python tests/conformance/contract.py --check   fail if that says more than what ran
    python tests/conformance/contract.py --rows    print each row with its tests

A test names the rows that it asserts with `@pytest.mark.contract("G-08", ...)`, and with
`@pytest.mark.needs(name, missing)` what it cannot run without. `make test` records which of these
tests ran, and in what way they ended (`contract_run.py`); both the table and the check are made
from that record. The rows themselves are in `contract_rows.json`: by area its title and the
priority of each row.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance.contract_run import Ran, read
from conformance.differences import BETWEEN, BEYOND, Difference

ROOT = Path(__file__).resolve().parents[2]
ROWS = Path(__file__).with_name("contract_rows.json")
TABLE = ROOT / "docs" / "reference" / "contract-coverage.md"
RECORD = ROOT / "build" / "contract-run.jsonl"
PRIORITIES = ("P0", "P1", "P2")

_HEAD = """\
# Contract coverage

What Triton does is written down as {total} rows in {areas} areas (P0 is the core, P1 what users
expect, P2 rare); those that the code cites are explained in `contract.md`. A row counts only if a
test that names it ran and passed:

- **asserted**: by a test that runs everywhere,
- **conditional**: only by tests that need a program, the environment of an engine or recordings of
  Triton, and are skipped where those are missing,
- **open**: by no test.

`24 + 1 of 27` is 24 rows asserted, one conditional and two open. Made by
`tests/conformance/contract.py` from the record of a whole run; `make test` fails where the table
says more than what ran.

| area | P0 | P1 | P2 | all |
|---|---:|---:|---:|---:|
"""
_CONDITIONAL = """
## Conditional rows

What the tests need, and the rows that only they assert.

"""
_OPEN = """
## Open rows

"""
_BETWEEN = """
## Where the contract and the recorded Triton differ

The contract was read from Triton's sources of 2026, the recordings are of release 2.51 (2024). The
tests that ask the recorded questions again fail on a difference that is not in these two tables.

| rows | the contract | the recorded 2.51 | side taken | why |
|---|---|---|---|---|
"""
_BEYOND = """
## Where Penstock differs from both

| rows | the contract | the recorded 2.51 | here | why |
|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Area:
    """One area of the contract: its title and the priority of each of its rows."""

    title: str
    rows: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The rows that a run asserted; all others are open."""

    asserted: frozenset[str]
    conditional: Mapping[str, frozenset[str]]
    """The rows whose tests all need something, with the names of that."""

    @property
    def all(self) -> frozenset[str]:
        return self.asserted | self.conditional.keys()


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


def _marks_of(tree: ast.AST, owner: str = "all") -> Iterator[tuple[str, str]]:
    """Each test with each row that a mark on it names; a mark on the module is on `all` of it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _marks_of(node, node.name if owner == "all" else f"{owner}.{node.name}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.contract":
            # Rows from a table are left out: they are known when the test runs.
            given = (row for row in node.args if not isinstance(row, ast.Starred))
            yield from ((owner, ast.literal_eval(row)) for row in given)
        else:
            yield from _marks_of(node, owner)


def coverage(run: Iterable[Ran]) -> Coverage:
    """The rows that a run asserts; equal on machines with and without tools and recordings."""
    tests: dict[str, list[frozenset[str]]] = {}
    for ran in run:
        if ran.outcome == "passed" or (ran.outcome == "skipped" and ran.missing):
            for row in ran.rows:
                tests.setdefault(row, []).append(frozenset(ran.needs))
    asserted = frozenset(row for row, needs in tests.items() if not all(needs))
    rest = {row: frozenset().union(*tests[row]) for row in sorted(tests.keys() - asserted)}
    return Coverage(asserted, rest)


# -- the document ---------------------------------------------------------------------------------


def document(contract: list[Area], found: Coverage) -> str:
    """The text of docs/reference/contract-coverage.md."""
    total = Area("**all**", {row: p for area in contract for row, p in area.rows.items()})
    lines = [_line(area, found) for area in [*contract, total]]
    head = _HEAD.format(total=len(total.rows), areas=len(contract)) + "\n".join(lines) + "\n"
    parts = [
        head,
        _CONDITIONAL,
        *_by_need(total.rows, found.conditional),
        _OPEN,
        *_open(contract, found),
        _BETWEEN,
        *_lines(BETWEEN),
        _BEYOND,
        *_lines(BEYOND),
    ]
    return "".join(parts)


def _lines(differences: Iterable[Difference]) -> Iterator[str]:
    return (f"{difference.line()}\n" for difference in differences)


def _line(area: Area, found: Coverage) -> str:
    cells = [_count([row for row, p in area.rows.items() if p == q], found) for q in PRIORITIES]
    return " | ".join(["| " + area.title, *cells, _count(list(area.rows), found) + " |"])


def _count(rows: list[str], found: Coverage) -> str:
    if not rows:
        return ""
    asserted = sum(row in found.asserted for row in rows)
    conditional = sum(row in found.conditional for row in rows)
    return f"{asserted}{f' + {conditional}' if conditional else ''} of {len(rows)}"


def _by_need(rows: Iterable[str], conditional: Mapping[str, frozenset[str]]) -> Iterator[str]:
    by_need: dict[str, list[str]] = {}
    for row in rows:
        if row in conditional:
            by_need.setdefault(" or ".join(sorted(conditional[row])), []).append(row)
    for need, of_it in sorted(by_need.items()):
        yield f"- {need}: {', '.join(of_it)}\n"


def _open(contract: list[Area], found: Coverage) -> Iterator[str]:
    for area in contract:
        rows = [row for row in area.rows if row not in found.all]
        if rows:
            which = "all rows" if len(rows) == len(area.rows) else ", ".join(rows)
            yield f"- {area.title}: {which}\n"


# -- the check ------------------------------------------------------------------------------------


def disagreement(written: str, run: list[Ran], named: Mapping[str, list[str]]) -> str:
    """What a written document says beyond what a run asserted, with the reasons; empty if nothing.

    A document that says less is no fault: a run on another machine may assert more.
    """
    found, claimed = coverage(run), _claimed(written)
    marked = named.keys() - found.all
    missing = (claimed.asserted - found.asserted) | (claimed.all - found.all) | marked
    if not missing:
        return ""
    expected = document(areas(), found)
    lines = difflib.unified_diff(
        written.splitlines(), expected.splitlines(), "written", "ran", n=0, lineterm=""
    )
    lost = sorted(missing - found.all)
    outcomes = {row: [f"{r.test} {r.outcome}" for r in run if row in r.rows] for row in lost}
    reasons = [f"{row}: {', '.join(outcomes[row]) or 'no test with its mark ran'}" for row in lost]
    return "\n".join([*lines, *reasons])


def _claimed(written: str) -> Coverage:
    """The coverage that a document states, by its lists of conditional and open rows."""
    contract = areas()
    lists = written.partition(_CONDITIONAL)[2]
    conditional, _, open_rows = lists.partition(_OPEN)
    open_rows = open_rows.partition(_BETWEEN)[0]
    uncovered = _named_rows(open_rows)
    for area in contract:
        if f"- {area.title}: all rows" in open_rows.splitlines():
            uncovered |= area.rows.keys()
    some = _named_rows(conditional)
    rows = {row for area in contract for row in area.rows}
    return Coverage(frozenset(rows - some - uncovered), dict.fromkeys(some, frozenset()))


def _named_rows(text: str) -> set[str]:
    return set(re.findall(r"\b[A-Z][A-Z0-9]*-\d+\b", text))


def _check() -> None:
    written, run = TABLE.read_text(), list(read(_record()))
    name = TABLE.relative_to(ROOT)
    if problem := disagreement(written, run, marks()):
        remedy = "if that is meant: python tests/conformance/contract.py"
        sys.exit(f"{problem}\n{name} says more than what ran; {remedy}")
    more = "" if written == document(areas(), coverage(run)) else "; more ran than it says"
    print(f"{name} holds{more}")


def _record() -> Path:
    if not RECORD.is_file():
        sys.exit(f"There is no record of a run in {RECORD.relative_to(ROOT)}: make test")
    return RECORD


def _print_rows() -> None:
    named = marks()
    for area in areas():
        print(area.title)
        for row, priority in area.rows.items():
            print(f"  {row:7} {priority}  {', '.join(named.get(row, ['-']))}")


def main() -> None:
    parser = argparse.ArgumentParser(description="How much of the contract is asserted by tests.")
    parser.add_argument("--rows", action="store_true", help="print each row with its tests")
    parser.add_argument("--check", action="store_true", help="compare the table with what ran")
    chosen = parser.parse_args()
    if chosen.rows:
        _print_rows()
    elif chosen.check:
        _check()
    else:
        TABLE.write_text(document(areas(), coverage(read(_record()))))


if __name__ == "__main__":
    main()
