"""What users report of Triton's Python backend, in short: each kind of call, some times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loadtest.crash_models import write_crash_models
from loadtest.scenarios.crashes import CASES, Case, drive

from harness.serving import Served, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("crashes")
    with serving(write_crash_models(folder / "models", most=1), folder / "log") as server:
        yield server


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_call_is_answered_right(case: Case, served: Served) -> None:
    tally = drive(case, served.grpc, seconds=60, calls=1 if case.rest else 2)
    assert (tally.wrong, tally.lost, dict(tally.unexpected)) == (0, 0, {})
    assert tally.right > 0
    assert served.process.poll() is None
