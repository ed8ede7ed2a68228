"""Seeds of the simulation: worlds in which nothing may go wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from simulation.world import wrong

_SEEDS = 10_000
_AT_ONCE = 100


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
