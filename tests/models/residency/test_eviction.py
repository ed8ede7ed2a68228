"""Which models go so that another one finds room."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given

from models.residency.residents import MISSING, RESIDENTS
from penstock.core.config import ModelConfig
from penstock.core.errors import UnavailableError
from penstock.models.residency.memory import ModelMemory, Resident, victims
from penstock.models.sizing.budget import MemoryBudget
from penstock.models.sizing.estimate import ModelFacts

_PLAIN = Resident("a", sizes={"": 100}, idle_seconds=10, load_seconds=1)


@given(RESIDENTS, MISSING)
def test_what_goes_is_enough_may_go_and_is_all_needed(
    residents: list[Resident], missing: dict[str, int]
) -> None:
    chosen = victims(residents, missing)
    by_name = {one.name: one for one in residents}
    assert all(by_name[name].evictable or by_name[name].ripe for name in chosen)
    if chosen:
        assert _free(residents, chosen, missing)
        assert not any(_free(residents, {*chosen} - {name}, missing) for name in chosen)
    else:
        assert not _free(
            residents, [one.name for one in residents if one.evictable or one.ripe], missing
        )


def _free(residents: list[Resident], names: Collection[str], missing: dict[str, int]) -> bool:
    """Whether enough comes free under each limit where these models go."""
    gone = [one.sizes for one in residents if one.name in names]
    return all(sum(sizes.get(limit, 0) for sizes in gone) >= n for limit, n in missing.items())


@given(RESIDENTS, MISSING)
def test_the_order_in_which_models_are_told_does_not_matter(
    residents: list[Resident], missing: dict[str, int]
) -> None:
    assert victims(residents, missing) == victims(residents[::-1], missing)


def test_the_longer_idle_the_larger_and_the_quicker_loaded_goes_first() -> None:
    for worse in (
        replace(_PLAIN, name="b", idle_seconds=20),
        replace(_PLAIN, name="b", sizes={"": 200}),
        replace(_PLAIN, name="b", load_seconds=0.5),
    ):
        assert victims([_PLAIN, worse], {"": 50}) == ["b"]


def test_a_small_one_that_would_not_have_been_enough_stays() -> None:
    small = replace(_PLAIN, name="small", sizes={"": 10}, idle_seconds=1000)
    assert victims([_PLAIN, small], {"": 50}) == ["a"]


def test_a_model_whose_room_others_took_needs_no_more_than_before() -> None:
    config = ModelConfig(name="m", backend="fil")
    budget = MemoryBudget(100)
    budget.claim(ModelFacts(replace(config, name="other"), weights={"as stored": 60}))
    memory = ModelMemory(budget)
    for _ in range(3):
        memory.ask_again(["m"])
        assert not memory.refused(["m"])
        with pytest.raises(UnavailableError):
            budget.claim(ModelFacts(config, weights={"as stored": 40}))
        assert memory.refused(["m"])
        assert asyncio.run(memory.lacking({"m": None})) == {"": 69 + 46 - 100}
