"""KV events of engines, which a publisher of the test stands in for, as routers get them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import grpc
import pytest

from penstock.rpc.engine.kv_events import batch_of
from penstock.server.server import InferenceServer
from rpc.engine.publisher import Publisher
from rpc.engine.scripted import ScriptedBackend, common, failure

zmq: Any = pytest.importorskip("zmq.asyncio")

STORED = {
    "type": "BlockStored",
    "block_hashes": [b"\xff" * 32, 5],
    "parent_block_hash": 3,
    "token_ids": [1, 2, 3, 4],
    "block_size": 2,
    "lora_id": None,
    "medium": "GPU",
    "lora_name": None,
}
REMOVED = {"type": "BlockRemoved", "block_hashes": [5], "medium": "CPU"}
CLEARED = {"type": "AllBlocksCleared"}


async def test_what_an_engine_publishes_reaches_the_router(stub: Any, publisher: Publisher) -> None:
    call = stub.SubscribeKvEvents(common.SubscribeKvEventsRequest(), timeout=30)
    await call.initial_metadata()  # which routers wait for, before there is any event
    assert await publisher.subscriber()
    await publisher.publish(41, {"ts": 1.5, "events": [STORED, REMOVED, CLEARED]})
    batch = await call.read()
    assert (batch.sequence_number, batch.timestamp, batch.dp_rank) == (41, 1.5, 0)
    stored, removed, cleared = batch.events
    assert [(one.block_hash, list(one.token_ids)) for one in stored.stored.blocks] == [
        (-1, [1, 2]),
        (5, [3, 4]),
    ]
    assert stored.stored.parent_block_hash == 3
    assert stored.stored.tier == common.KV_CACHE_TIER_DEVICE
    assert (list(removed.removed.block_hashes), removed.removed.medium) == ([5], "CPU")
    assert cleared.WhichOneof("data") == "cleared"
    call.cancel()
    assert not await publisher.subscriber()


async def test_a_server_that_stops_ends_the_subscription(
    stub: Any, server: InferenceServer, publisher: Publisher
) -> None:
    from penstock.core.exit_deadline import ExitDeadline

    call = stub.SubscribeKvEvents(common.SubscribeKvEventsRequest(), timeout=30)
    assert await publisher.subscriber()
    reading = asyncio.ensure_future(call.read())
    await server.stop(ExitDeadline(5))
    code, _ = await failure(reading)
    assert code is grpc.StatusCode.UNAVAILABLE


async def test_a_server_that_stops_meanwhile_ends_a_subscription_that_begins(
    stub: Any, server: InferenceServer, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once() -> None:
        pass

    monkeypatch.setattr(server, "wait_stopping", at_once)
    code, _ = await failure(
        stub.SubscribeKvEvents(common.SubscribeKvEventsRequest(), timeout=30).read()
    )
    assert code is grpc.StatusCode.UNAVAILABLE


async def test_an_event_that_cannot_be_read_is_left_out(stub: Any, publisher: Publisher) -> None:
    call = stub.SubscribeKvEvents(common.SubscribeKvEventsRequest(), timeout=30)
    assert await publisher.subscriber()
    wrong = {**STORED, "token_ids": [1]}
    await publisher.publish(1, {"ts": 1.5, "events": [wrong, 7, CLEARED]})
    batch = await call.read()
    assert [one.WhichOneof("data") for one in batch.events] == ["cleared"]
    call.cancel()


async def test_what_is_no_batch_ends_the_subscription(stub: Any, publisher: Publisher) -> None:
    call = stub.SubscribeKvEvents(common.SubscribeKvEventsRequest(), timeout=30)
    assert await publisher.subscriber()
    await publisher.publish(1, {"events": []})
    code, text = await failure(call.read())
    assert (code, "cannot be read" in text) == (grpc.StatusCode.UNAVAILABLE, True)


@pytest.mark.parametrize("number", [43, 0, 41])
async def test_a_batch_that_is_missing_has_the_router_begin_anew(
    stub: Any, publisher: Publisher, number: int
) -> None:
    """Or one of an engine that has started again."""
    call = stub.SubscribeKvEvents(common.SubscribeKvEventsRequest(), timeout=30)
    assert await publisher.subscriber()
    await publisher.publish(41, {"ts": 1.5, "events": []})
    await call.read()
    await publisher.publish(number, {"ts": 1.6, "events": []})
    code, text = await failure(call.read())
    assert (code, f"number {number}, not 42" in text) == (grpc.StatusCode.DATA_LOSS, True)


async def test_events_of_the_past_are_not_kept(stub: Any, publisher: Publisher) -> None:
    request = common.SubscribeKvEventsRequest(start_sequence_number=7)
    code, _ = await failure(stub.SubscribeKvEvents(request, timeout=30).read())
    assert code is grpc.StatusCode.OUT_OF_RANGE


async def test_an_engine_that_goes_ends_the_subscription(stub: Any, publisher: Publisher) -> None:
    call = stub.SubscribeKvEvents(common.SubscribeKvEventsRequest(), timeout=30)
    assert await publisher.subscriber()
    publisher.close()
    code, text = await failure(call.read())
    assert (code, "has gone" in text) == (grpc.StatusCode.UNAVAILABLE, True)


def test_only_caches_of_prefixes_are_told_of() -> None:
    """A hybrid model's other caches have blocks of their own, with the same tokens."""
    of_window = {**STORED, "kv_cache_spec_kind": "sliding_window"}
    whole = {**STORED, "kv_cache_spec_kind": "full_attention"}
    assert len(batch_of([1.5, [of_window, whole]], 7, 0).events) == 1


def test_tokens_may_come_with_their_next_ones() -> None:
    pairs = {**STORED, "token_ids": [[1, 2], [2, 3], [3, 4], [4, 9]]}
    [event] = batch_of([1.5, [pairs]], 7, 0).events
    assert [list(one.token_ids) for one in event.stored.blocks] == [[1, 2], [3, 4]]


async def test_a_publisher_that_nobody_can_reach_is_no_subscription(
    stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = replace(ScriptedBackend.facts, kv_events={"0": "nowhere"})
    monkeypatch.setattr(ScriptedBackend, "facts", facts)
    call = stub.SubscribeKvEvents(common.SubscribeKvEventsRequest(), timeout=30)
    code, _ = await failure(call.read())
    assert code is grpc.StatusCode.INTERNAL


def test_a_release_may_send_values_of_batches_and_fields_of_events() -> None:
    """As vLLM 0.32 does."""
    batch = batch_of([1.5, [STORED, CLEARED], 1], 7, 0)
    assert (batch.timestamp, batch.dp_rank, len(batch.events)) == (1.5, 1, 2)
    assert [one.block_hash for one in batch.events[0].stored.blocks] == [-1, 5]


def test_older_releases_send_only_the_values() -> None:
    values = ["BlockStored", [5], None, [1, 2], 2, None, "GPU", "adapter"]
    batch = batch_of([1.5, [values, ["AllBlocksCleared"], ["Unknown"]], 3], 7, 0)
    assert (batch.sequence_number, batch.dp_rank, len(batch.events)) == (7, 3, 2)
    assert batch.events[0].stored.lora_name == "adapter"
    assert not batch.events[0].stored.HasField("parent_block_hash")
