"""A pytest plugin that records what became of each test that asserts rows of the contract."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

VARIABLE = "PENSTOCK_CONTRACT_RUN"
"""The environment variable that names the file of the record; without it nothing is recorded."""

_WORST = ("passed", "skipped", "failed")
_USUAL = (".venv", ".venv-compiled")
"""The environments whose tests run everywhere."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One test that names rows, as it ended."""

    test: str
    rows: tuple[str, ...]
    outcome: str  # passed, skipped or failed
    needs: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Names of the tools and recordings that it needs and this machine lacks."""


def environment(prefix: str) -> tuple[str, ...]:
    """The needs of tests whose interpreter has this prefix: its environment, if it is not usual.

    Tests start sessions in the environments of engines, such as `.venv-vllm`, which not every
    machine has.
    """
    name = Path(prefix).name
    return () if name in _USUAL else (name.removeprefix(".venv-"),)


class ContractRun:
    """Appends to a file what became of the tests of a session, a line of JSON for each.

    Sessions that tests start themselves append to the same file.
    """

    def __init__(self, path: Path, prefix: str = sys.prefix) -> None:
        self._path = path
        self._needs = environment(prefix)
        self._ran: dict[str, Ran] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        rows = tuple(row for mark in item.iter_markers("contract") for row in mark.args)
        if rows:
            known = self._ran.get(item.nodeid)
            outcomes = [report.outcome, known.outcome if known else report.outcome]
            needs = list(item.iter_markers("needs"))
            self._ran[item.nodeid] = Ran(
                item.nodeid,
                rows,
                max(outcomes, key=_WORST.index),
                (*self._needs, *(mark.args[0] for mark in needs)),
                tuple(mark.args[0] for mark in needs if mark.args[1]),
            )
        return report

    def pytest_sessionfinish(self) -> None:
        with self._path.open("a") as record:
            record.writelines(json.dumps(asdict(ran)) + "\n" for ran in self._ran.values())


def read(path: Path) -> Iterator[Ran]:
    """The outcomes in a record."""
    for line in path.read_text().splitlines():
        test, rows, outcome, needs, missing = json.loads(line).values()
        yield Ran(test, tuple(rows), outcome, tuple(needs), tuple(missing))
