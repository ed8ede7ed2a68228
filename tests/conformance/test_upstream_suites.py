"""Each suite of Triton's that applies here has tests of ours that there are."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from conformance.contract import areas
from conformance.upstream_suites import SUITES, Suite

_TESTS = Path(__file__).parents[1]


@cache
def _functions(file: str) -> frozenset[str]:
    tree = ast.parse((_TESTS / file).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def _missing(suite: Suite) -> list[str]:
    return [name for name in suite.tests if not _is_there(*name.split("::"))]


def _is_there(file: str, function: str) -> bool:
    return (_TESTS / file).is_file() and function in _functions(file)


@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=pytest.mark.contract(row)) for row in SUITES]
)
def test_suites_of_a_row_have_tests_or_a_reason(row: str) -> None:
    known = {suite.name: _missing(suite) for suite in SUITES[row]}
    assert {name: missing for name, missing in known.items() if missing} == {}
    assert [each.name for each in SUITES[row] if bool(each.tests) == bool(each.not_here)] == []


def test_rows_are_of_the_contract() -> None:
    (area,) = [each.rows for each in areas() if "QA-01" in each.rows]
    assert SUITES.keys() <= area.keys()
