"""Pools of messages: one for each model that exists, and bounds for all together."""

from __future__ import annotations

import pytest

from penstock.core.change_notifier import ChangeNotifier
from penstock.shared_memory.message_memory import WORTH
from penstock.shared_memory.message_pools import MessagePools

MIB = 1 << 20


def _message(pools: MessagePools, model: str, size: int = MIB) -> memoryview:
    reserved = pools.reserve(model, size, 0)
    assert reserved is not None
    return reserved


def test_each_model_has_memory_of_its_own() -> None:
    pools = MessagePools()
    one, other = _message(pools, "one"), _message(pools, "other")
    places = [pools.place(message, 0, message) for message in (one, other)]
    regions = [place.region for place in places if place is not None]
    assert [region.readers for region in regions] == [frozenset({"one"}), frozenset({"other"})]
    assert regions[0].number != regions[1].number


def test_names_of_no_model_make_no_pool() -> None:
    pools = MessagePools(lambda name: frozenset([name]) if name == "m" else frozenset())
    assert pools.reserve("invented", MIB, 0) is None
    assert pools.reserve("", MIB, 0) is None
    _message(pools, "m")
    assert pools.models == ("m",)


def test_small_messages_make_no_pool() -> None:
    pools = MessagePools()
    assert pools.reserve("m", WORTH - 1, 0) is None
    assert pools.models == ()


def test_the_pool_that_was_used_least_goes_for_a_new_one() -> None:
    pools = MessagePools()
    for number in [*range(32), 0, 32]:
        _message(pools, str(number))
    assert len(pools.models) == 32
    assert "1" not in pools.models
    assert "0" in pools.models


async def test_nothing_outlives_a_change_among_the_models() -> None:
    changes = ChangeNotifier()
    pools = MessagePools(changes=changes)
    _message(pools, "m")[:6] = b"secret"
    changes.notify()
    assert bytes(_message(pools, "m")[:6]) == bytes(6)


def test_a_message_stays_readable_when_its_pool_is_gone() -> None:
    pools = MessagePools()
    message = _message(pools, "0")
    message[:2] = b"ab"
    for number in range(1, 33):
        _message(pools, str(number))
    assert bytes(message[:2]) == b"ab"
    assert pools.place(message, 0, message) is None


def test_all_pools_keep_no_more_together_than_one_may() -> None:
    pools = MessagePools()
    for model in ("a", "b"):
        taken = [_message(pools, model, 32 * MIB) for _ in range(8)]
        del taken
    assert 0 < pools.kept <= 256 * MIB


@pytest.mark.parametrize("rounds", [9])
def test_who_is_asked_gets_warm_memory_of_who_was_asked_before(rounds: int) -> None:
    pools = MessagePools()
    before = [_message(pools, "a", 32 * MIB) for _ in range(8)]
    del before
    for _ in range(rounds):
        _message(pools, "b", 32 * MIB)
    place = pools.place(message := _message(pools, "b", 32 * MIB), 0, message)
    assert place is not None
    del place, message
    assert pools.kept <= 256 * MIB
