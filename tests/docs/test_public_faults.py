"""The table of public faults names tests that exist, and is the page that it writes."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from security.public_faults import FAULTS, PAGE, Fault, page

_TESTS = Path(__file__).parents[1]
_IDS = re.compile(
    r"CVE-20(2[3-6])-\d{4,5}|GHSA(-[a-z0-9]{4}){3}|VU#\d{6}"
    r"|(server|core|common|python_backend|vllm|kserve)#\d+"
)
_NAMED = sorted({name for fault in FAULTS for name in fault.tests})


@cache
def _functions(file: Path) -> set[str]:
    """Tests on top of a file; none are in classes here."""
    body = ast.parse(file.read_text("utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("name", _NAMED)
def test_each_named_test_exists(name: str) -> None:
    file, _, function = name.partition("::")
    assert function.partition("[")[0] in _functions(_TESTS / file)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.ids)
def test_each_row_has_ids_and_tests(fault: Fault) -> None:
    assert all(_IDS.fullmatch(one) for one in fault.ids.split(", ")), fault.ids
    assert fault.tests


def test_the_page_is_up_to_date() -> None:
    """After an edit of the table: `PYTHONPATH=tests python -m security.public_faults`."""
    assert PAGE.read_text("utf-8") == page()
