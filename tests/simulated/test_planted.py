"""Bugs that the simulation must find."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from pathlib import Path

import pytest

from simulation.planted import PLANTED
from simulation.world import shrunk, wrong

_MOST = 80
"""Seeds in which each planted bug is found."""


# A server that has gone wrong is not closed in every part.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(repository: Path, bug: str) -> None:
    with ExitStack() as planted:
        for patch in PLANTED[bug]:
            planted.enter_context(patch)
        assert any(wrong(repository, seed) is not None for seed in range(_MOST))
    gc.collect()


def test_a_failing_seed_is_made_smaller(repository: Path) -> None:
    with ExitStack() as planted:
        for patch in PLANTED["a response is sent twice"]:
            planted.enter_context(patch)
        seed = next(seed for seed in range(_MOST) if wrong(repository, seed) is not None)
        kept, error = shrunk(repository, seed)
    assert len(kept) <= 1
    assert "got" in str(error) or "end early" in str(error)
