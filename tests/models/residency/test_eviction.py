"""Which models go so that another one finds room."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.config import ModelConfig
from penstock.core.errors import UnavailableError
from penstock.models.residency.memory import ModelMemory, Resident, victims
from penstock.models.sizing.budget import MemoryBudget
from penstock.models.sizing.estimate import ModelFacts

_TIMES = st.floats(0, 1e6, allow_nan=False)
_RESIDENTS = st.lists(
    st.builds(Resident, st.text(), st.integers(0, 1 << 40), _TIMES, _TIMES, st.booleans()),
    max_size=12,
    unique_by=lambda one: one.name,
)
_PLAIN = Resident("a", size=100, idle_seconds=10, load_seconds=1)


@given(_RESIDENTS, st.integers(1, 1 << 42))
def test_what_goes_is_enough_may_go_and_is_all_needed(
    residents: list[Resident], missing: int
) -> None:
    chosen = victims(residents, missing)
    by_name = {one.name: one for one in residents}
    assert all(by_name[name].evictable for name in chosen)
    freed = sum(by_name[name].size for name in chosen)
    if chosen:
        assert freed >= missing
        assert all(freed - by_name[name].size < missing for name in chosen)
    else:
        assert sum(one.size for one in residents if one.evictable) < missing


@given(_RESIDENTS, st.integers(1, 1 << 42))
def test_the_order_in_which_models_are_told_does_not_matter(
    residents: list[Resident], missing: int
) -> None:
    assert victims(residents, missing) == victims(residents[::-1], missing)


def test_the_longer_idle_the_larger_and_the_quicker_loaded_goes_first() -> None:
    for worse in (
        replace(_PLAIN, name="b", idle_seconds=20),
        replace(_PLAIN, name="b", size=200),
        replace(_PLAIN, name="b", load_seconds=0.5),
    ):
        assert victims([_PLAIN, worse], 50) == ["b"]


def test_a_small_one_that_would_not_have_been_enough_stays() -> None:
    small = replace(_PLAIN, name="small", size=10, idle_seconds=1000)
    assert victims([_PLAIN, small], 50) == ["a"]


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
        assert asyncio.run(memory.lacking({"m": None})) == 69 + 46 - 100
