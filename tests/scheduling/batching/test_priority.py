"""Priority levels and queue policies, as configurations give them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.config import DynamicBatching, QueuePolicy, TimeoutAction
from penstock.scheduling.batching.priority import LevelPolicy, PriorityLevels

SECONDS = st.floats(0, 9, allow_subnormal=False)


def test_without_levels_every_priority_is_the_same() -> None:
    levels = PriorityLevels.from_config(DynamicBatching())
    assert {levels.level(priority) for priority in (0, 1, 2, 1 << 63)} == {0}


@pytest.mark.contract("D-09")
@pytest.mark.parametrize(("asked", "level"), [(0, 2), (1, 1), (2, 2), (3, 3), (4, 2), (1 << 63, 2)])
def test_a_priority_that_no_level_has_is_the_default(asked: int, level: int) -> None:
    levels = PriorityLevels.from_config(
        DynamicBatching(priority_levels=3, default_priority_level=2)
    )
    assert levels.level(asked) == level


@pytest.mark.contract("D-10")
def test_a_level_without_a_policy_of_its_own_has_the_default_one() -> None:
    batching = DynamicBatching(
        priority_levels=2,
        default_priority_level=1,
        default_queue_policy=QueuePolicy(max_queue_size=7),
        priority_queue_policy={2: QueuePolicy(TimeoutAction.DELAY, 500)},
    )
    levels = PriorityLevels.from_config(batching)
    assert levels.policy(1) == LevelPolicy(max_queue_size=7)
    assert levels.policy(2) == LevelPolicy(timeout=0.0005, delays=True)


def test_policies_of_levels_that_do_not_exist_are_not_looked_at() -> None:
    batching = DynamicBatching(priority_queue_policy={0: QueuePolicy(max_queue_size=1)})
    assert PriorityLevels.from_config(batching).policy(0) == LevelPolicy()


def test_many_levels_cost_nothing() -> None:
    levels = PriorityLevels.from_config(
        DynamicBatching(priority_levels=1 << 60, default_priority_level=1)
    )
    assert levels.level(1 << 59) == 1 << 59


@pytest.mark.contract("D-14", "GP-04")
@given(SECONDS, SECONDS, st.booleans())
def test_a_request_can_only_lower_its_time(limit: float, asked: float, allowed: bool) -> None:
    allowed_wait = LevelPolicy(timeout=limit, overridable=allowed).queue_timeout(asked)
    assert allowed_wait == (min(asked, limit) if allowed and asked and limit else limit)
