"""Every door takes a bounded part of the fuzzing; `python -m fuzz` does as much as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.doors import DOORS
from fuzz.run import DoorFuzzer, corpus

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", DOORS)
def test_nothing_escapes_but_refusals(name: str, tmp_path: Path) -> None:
    fuzzer = DoorFuzzer(name, tmp_path)
    fuzzer.run(DOORS[name].quick)
    assert fuzzer.outcomes["understood"]
    assert fuzzer.inputs == DOORS[name].quick


@pytest.mark.parametrize("name", DOORS)
def test_examples_are_understood(name: str, tmp_path: Path) -> None:
    """Else they would lead nowhere."""
    fuzzer = DoorFuzzer(name, tmp_path)
    outcomes = [fuzzer.one(data) for data in DOORS[name].examples()]
    assert outcomes == ["understood"] * len(outcomes)
    assert len(corpus(name)) >= len(outcomes) > 0
