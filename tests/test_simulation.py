"""Seeds of the simulation, and bugs that it must find."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from simulation.models import write_repository
from simulation.planted import PLANTED
from simulation.world import shrunk, wrong

_SEEDS = 800
_AT_ONCE = 100
_MOST = 80
"""Seeds in which each planted bug is found."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("models")
    write_repository(path)
    gc.collect()
    gc.freeze()  # each world collects at its end, and need not look at what is older
    yield path
    gc.unfreeze()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Processes that are killed by the hundred leave no lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, _SEEDS, _AT_ONCE))
def test_nothing_goes_wrong(repository: Path, first: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first, first + _AT_ONCE):
        if (error := wrong(repository, seed, seen=seen)) is not None:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    assert min(seen[kind] for kind in ("whole", "left", "failed", "stopped")) > 0


def test_a_seed_says_everything(repository: Path) -> None:
    played: list[Counter[str]] = [Counter(), Counter(), Counter()]
    for seed, seen in zip((7, 7, 8), played, strict=True):
        assert wrong(repository, seed, seen=seen) is None
    assert played[0] == played[1] != played[2]


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
