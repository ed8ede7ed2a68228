"""The LRU cache in memory, within its size."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.caching.local import LocalCache
from penstock.core.errors import ConfigError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import DataType, Tensor

pytestmark = pytest.mark.contract("RC-06")

OVERHEAD = 600
"""What a response with one tensor takes beside the tensor's bytes."""


def response(size: int = 0, mark: int = 0) -> InferenceResponse:
    tensor = Tensor(DataType.UINT8, (size,), bytes([mark]) * size)
    return InferenceResponse({"OUT": tensor}, {"mark": mark}, final=True)


def insert(cache: LocalCache, key: bytes, kept: InferenceResponse) -> None:
    cache.insert(key, kept, lambda: None)


def look_up(cache: LocalCache, key: bytes) -> InferenceResponse | None:
    found: list[InferenceResponse | None] = []
    cache.lookup(key, found.append)
    return found[0]


def test_an_inserted_response_is_found() -> None:
    cache = LocalCache(10_000)
    insert(cache, b"a", response(3, 7))
    found = look_up(cache, b"a")
    assert found is not None
    assert bytes(found.outputs["OUT"].buffer) == b"\7\7\7"
    assert (found.parameters, found.final) == ({"mark": 7}, True)


def test_a_copy_is_stored() -> None:
    """The memory of a response goes back to the model process that made it."""
    cache, memory = LocalCache(10_000), bytearray(b"abc")
    tensor = Tensor(DataType.UINT8, (3,), memoryview(memory))
    insert(cache, b"a", InferenceResponse({"OUT": tensor}, final=True))
    memory[:] = b"xyz"
    found = look_up(cache, b"a")
    assert found is not None
    assert bytes(found.outputs["OUT"].buffer) == b"abc"


def test_the_least_recently_used_leaves_first() -> None:
    cache = LocalCache(2 * OVERHEAD)
    insert(cache, b"a", response())
    insert(cache, b"b", response())
    look_up(cache, b"a")
    insert(cache, b"c", response())
    assert look_up(cache, b"b") is None
    assert look_up(cache, b"a") is not None
    assert cache.statistics.evictions == 1


def test_a_response_larger_than_the_cache_evicts_nothing() -> None:
    cache = LocalCache(OVERHEAD + 10)
    insert(cache, b"a", response(10))
    insert(cache, b"b", response(11))
    assert look_up(cache, b"a") is not None
    assert look_up(cache, b"b") is None


def test_the_first_of_two_equal_requests_is_kept() -> None:
    cache = LocalCache(10_000)
    insert(cache, b"a", response(mark=1))
    insert(cache, b"a", response(mark=2))
    found = look_up(cache, b"a")
    assert found is not None
    assert found.parameters["mark"] == 1
    assert cache.statistics.entries == 1


@pytest.mark.contract("ME-20")
def test_lookups_are_counted() -> None:
    cache = LocalCache(10_000)
    look_up(cache, b"a")
    insert(cache, b"a", response())
    look_up(cache, b"a")
    counted = cache.statistics
    assert (counted.lookups, counted.hits, counted.misses) == (2, 1, 1)
    assert counted.lookup_ns > 0
    assert counted.insertion_ns > 0


async def test_a_closed_cache_holds_nothing() -> None:
    cache = LocalCache(10_000)
    insert(cache, b"a", response())
    await cache.close()
    assert (cache.statistics.entries, cache.statistics.utilization) == (0, 0.0)
    assert look_up(cache, b"a") is None


@given(
    st.integers(1, 5 * OVERHEAD),
    st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 900)), max_size=60),
)
def test_it_agrees_with_a_list_in_order_of_use(
    size: int, steps: list[tuple[bool, int, int]]
) -> None:
    """Against a plain model: same contents, never over the budget, exact counters."""
    cache = LocalCache(size)
    model: OrderedDict[bytes, int] = OrderedDict()
    evicted = 0
    for inserting, number, length in steps:
        key, need = bytes([number]), OVERHEAD + length
        if not inserting:
            assert (look_up(cache, key) is not None) == (key in model)
            if key in model:
                model.move_to_end(key)
            continue
        insert(cache, key, response(length))
        if need <= size and key not in model:
            while sum(model.values()) + need > size:
                model.popitem(last=False)
                evicted += 1
            model[key] = need
        counted = cache.statistics
        assert (counted.entries, counted.evictions) == (len(model), evicted)
        assert counted.utilization == pytest.approx(sum(model.values()) / size)
        assert counted.utilization <= 1


@pytest.mark.parametrize("text", ["", "0", "abc", "-1", "1.5"])
async def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="'size' must be a number of bytes above 0, got"):
        await LocalCache.open({"size": text})


async def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'limit' of the local cache"):
        await LocalCache.open({"size": "10", "limit": "3"})
