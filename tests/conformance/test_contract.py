"""The table of contract coverage: it counts rows whose tests ran, in three states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.contract import (
    PRIORITIES,
    ROOT,
    Area,
    areas,
    coverage,
    disagreement,
    document,
    marks,
)
from conformance.contract_run import Ran, environment, read
from conformance.differences import BETWEEN, BEYOND

pytest_plugins = ("pytester",)

_CONTRACT = ROOT.parent / "shared" / "spec" / "triton-features.md"
_SESSION = """
from pathlib import Path
from conformance.contract_run import ContractRun
from harness import needs

def pytest_configure(config):
    config.pluginmanager.register(needs)
    config.pluginmanager.register(ContractRun(Path("record"), "/penstock/.venv"))
    config.addinivalue_line("markers", "contract(*ids):")
    config.addinivalue_line("markers", "needs(name, missing):")
"""


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


# -- what a run asserts ---------------------------------------------------------------------------


def test_row_is_asserted_by_a_test_that_passed() -> None:
    assert coverage([Ran("t", ("A-01", "A-02"), "passed")]).asserted == {"A-01", "A-02"}


@pytest.mark.parametrize("outcome", ["skipped", "failed"])
def test_row_is_open_when_its_test_did_not_pass(outcome: str) -> None:
    found = coverage([Ran("t", ("A-01",), outcome)])
    assert not found.all


def test_row_is_conditional_when_its_tests_all_need_something() -> None:
    run = [Ran("t", ("A-01",), "passed", ("h2spec",)), Ran("u", ("A-01",), "passed", ("a GPU",))]
    assert coverage(run).conditional == {"A-01": {"h2spec", "a GPU"}}


def test_row_is_asserted_when_one_of_its_tests_needs_nothing() -> None:
    run = [Ran("t", ("A-01",), "passed", ("h2spec",)), Ran("u", ("A-01",), "passed")]
    assert coverage(run).asserted == {"A-01"}
    assert not coverage(run).conditional


def test_coverage_is_the_same_where_a_program_is_missing() -> None:
    there = Ran("t", ("A-01",), "passed", ("h2spec",))
    missing = Ran("t", ("A-01",), "skipped", ("h2spec",), ("h2spec",))
    assert coverage([there]) == coverage([missing])


def test_test_that_is_skipped_though_all_is_there_asserts_nothing() -> None:
    assert not coverage([Ran("t", ("A-01",), "skipped", ("h2spec",))]).all


# -- the record of a run --------------------------------------------------------------------------


def _recorded(pytester: pytest.Pytester, tests: str, *options: str) -> list[Ran]:
    pytester.makeconftest(_SESSION)
    pytester.makepyfile("import pytest\n" + tests)
    pytester.runpytest_inprocess("-p", "no:asyncio", "-p", "no:cacheprovider", *options)
    return list(read(pytester.path / "record"))


def test_record_holds_the_outcome_of_each_marked_test(pytester: pytest.Pytester) -> None:
    ran = _recorded(
        pytester,
        "@pytest.mark.contract('A-01', 'A-02')\n"
        "def test_one(): pass\n"
        "@pytest.mark.contract('A-03')\n"
        "def test_two(): pytest.skip('later')\n"
        "def test_of_no_row(): pass\n",
    )
    assert [(r.rows, r.outcome) for r in ran] == [
        (("A-01", "A-02"), "passed"),
        (("A-03",), "skipped"),
    ]


def test_test_whose_teardown_fails_has_failed(pytester: pytest.Pytester) -> None:
    (ran,) = _recorded(
        pytester,
        "@pytest.fixture\n"
        "def broken():\n"
        "    yield\n"
        "    raise OSError\n"
        "@pytest.mark.contract('A-01')\n"
        "def test_one(broken): pass\n",
    )
    assert ran.outcome == "failed"


def test_record_says_what_is_missing(pytester: pytest.Pytester) -> None:
    (ran,) = _recorded(
        pytester,
        "@pytest.mark.needs('h2spec', 'not installed')\n"
        "@pytest.mark.needs('openssl', '')\n"
        "@pytest.mark.contract('A-01')\n"
        "def test_one(): pass\n",
    )
    assert sorted(ran.needs) == ["h2spec", "openssl"]
    assert (ran.missing, ran.outcome) == (("h2spec",), "skipped")


@pytest.mark.parametrize(
    ("prefix", "needs"),
    [
        ("/penstock/.venv", ()),
        ("/penstock/.venv-compiled", ()),
        ("/penstock/.venv-vllm", ("vllm",)),
        ("/opt/engine", ("engine",)),
    ],
)
def test_tests_in_an_environment_of_an_engine_need_it(prefix: str, needs: tuple[str, ...]) -> None:
    assert environment(prefix) == needs


def test_row_that_is_asserted_in_an_environment_of_an_engine_alone_is_conditional(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(_SESSION.replace("/penstock/.venv", "/penstock/.venv-vllm"))
    pytester.makepyfile(
        "import pytest\n@pytest.mark.contract('A-01')\ndef test_one(): pass\n",
    )
    pytester.runpytest_inprocess("-p", "no:asyncio", "-p", "no:cacheprovider")
    assert coverage(read(pytester.path / "record")).conditional == {"A-01": {"vllm"}}


# -- the table ------------------------------------------------------------------------------------


def test_table_counts_rows_by_priority_and_state() -> None:
    contract = [Area("A", {"A-01": "P0", "A-02": "P0", "A-03": "P2"}), Area("B", {"B-01": "P1"})]
    run = [Ran("t", ("A-02", "B-01"), "passed"), Ran("u", ("A-01",), "passed", ("h2spec",))]
    text = document(contract, coverage(run))
    assert "| A | 1 + 1 of 2 |  | 0 of 1 | 1 + 1 of 3 |\n" in text
    assert "| B |  | 1 of 1 |  | 1 of 1 |\n" in text
    assert "| **all** | 1 + 1 of 2 | 1 of 1 | 0 of 1 | 2 + 1 of 4 |\n" in text


def test_table_lists_conditional_and_open_rows() -> None:
    contract = [Area("A", {"A-01": "P0", "A-02": "P0", "A-03": "P2"}), Area("B", {"B-01": "P1"})]
    run = [Ran("t", ("A-02",), "passed"), Ran("u", ("A-01",), "passed", ("h2spec",))]
    text = document(contract, coverage(run))
    assert "\n- h2spec: A-01\n" in text
    assert "\n- A: A-03\n- B: all rows\n" in text


def test_table_that_says_more_than_what_ran_is_refused_with_the_reason() -> None:
    written = document(areas(), coverage([Ran("t", ("G-01",), "passed")]))
    run = [Ran("tests/t.py::t", ("G-01",), "skipped")]
    problem = disagreement(written, run, {"G-02": ["t.py::u"]})
    assert problem.endswith("G-01: tests/t.py::t skipped\nG-02: no test with its mark ran")


def test_table_that_says_asserted_of_a_row_that_ran_under_a_condition_is_refused() -> None:
    written = document(areas(), coverage([Ran("t", ("G-01",), "passed")]))
    assert "\n+- h2spec: G-01" in disagreement(
        written, [Ran("t", ("G-01",), "passed", ("h2spec",))], {}
    )


@pytest.mark.parametrize("rows", [("G-01",), ("G-01", "G-02")])
def test_table_that_says_no_more_than_what_ran_is_accepted(rows: tuple[str, ...]) -> None:
    written = document(areas(), coverage([Ran("t", ("G-01",), "passed")]))
    assert disagreement(written, [Ran("t", rows, "passed")], {}) == ""


def test_every_difference_is_about_rows_of_the_contract() -> None:
    known = {row for area in areas() for row in area.rows}
    named = {row for difference in (*BETWEEN, *BEYOND) for row in difference.rows}
    assert named <= known


def test_rows_are_those_of_the_contract() -> None:
    if not _CONTRACT.is_file():
        pytest.skip(f"no contract in {_CONTRACT}")
    written = re.findall(r"^\| ([A-Z0-9]+-\d+) \|.*\| (P\d)[^|]*\|$", _CONTRACT.read_text(), re.M)
    kept = [(row, priority) for area in areas() for row, priority in area.rows.items()]
    assert kept == written
    assert {priority for _, priority in kept} == set(PRIORITIES)
