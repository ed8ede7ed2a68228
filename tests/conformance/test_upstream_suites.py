"""Each suite of Triton's that applies here has tests of ours that there are."""

from __future__ import annotations

import ast
import shutil
from functools import cache
from pathlib import Path

import pytest

from app.test_object_stores import CLOUDS, missing
from backends.vllm.test_real_engine import PYTHON
from conformance.contract import areas
from conformance.upstream_suites import SUITES, Suite
from programs.places import find

_TESTS = Path(__file__).parents[1]


@cache
def _functions(file: str) -> frozenset[str]:
    tree = ast.parse((_TESTS / file).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def _lost(suite: Suite) -> list[str]:
    return [name for name in suite.tests if not _is_there(*name.split("::"))]


def _is_there(file: str, function: str) -> bool:
    return (_TESTS / file).is_file() and function in _functions(file)


_NEEDS = {
    "QA-08": [pytest.mark.needs(name, missing(name)) for name in CLOUDS if name != "Google"],
    "QA-11": [
        pytest.mark.needs(name, "" if shutil.which(name) else f"{name} is not installed")
        for name in ("go", "node")
    ],
    "QA-13": [pytest.mark.needs("ghz", "" if find("ghz") else "ghz is not installed: make tools")],
    "QA-12": [pytest.mark.needs("torch", "" if PYTHON.exists() else f"no {PYTHON}: make vllm")],
}
"""What the tests of a row need themselves, where all do."""


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=[pytest.mark.contract(*[row]), *_NEEDS.get(row, [])])
        for row in SUITES
    ],
)
def test_suites_of_a_row_have_tests_or_a_reason(row: str) -> None:
    known = {suite.name: _lost(suite) for suite in SUITES[row]}
    assert {name: lost for name, lost in known.items() if lost} == {}
    assert [each.name for each in SUITES[row] if bool(each.tests) == bool(each.not_here)] == []


def test_rows_are_of_the_contract() -> None:
    (area,) = [each.rows for each in areas() if "QA-01" in each.rows]
    assert SUITES.keys() <= area.keys()
