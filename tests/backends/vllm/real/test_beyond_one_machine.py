"""KV events and KV connectors of engines that share caches with others."""

from __future__ import annotations

import asyncio
import json
from importlib import import_module
from typing import Any

import pytest

from backends.generation import PROMPT, plain, start
from backends.vllm.real.conftest import Sharing
from penstock.core.errors import InvalidRequestError
from penstock.testing import RunningInstance

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def first_event(instance: RunningInstance, subscriber: Any) -> Any:
    """The first message to a subscriber; the publisher tells nobody when it knows of one."""
    told = asyncio.ensure_future(subscriber.recv_multipart())
    for number in range(1000):
        [plain(r) async for r in start(instance, f"{number} {PROMPT}" * 20, max_tokens=1)]
        if told.done():
            break
    return await told


async def test_events_are_published_and_parameters_of_transfers_go_in_and_out(
    sharing: Sharing,
) -> None:
    instance = sharing.instance
    zmq = import_module("zmq")
    assert instance.backend.unready() == ""
    subscriber = import_module("zmq.asyncio").Context().socket(zmq.SUB)
    subscriber.subscribe(b"")
    subscriber.connect(f"tcp://127.0.0.1:{sharing.port}")
    given = {"do_remote_decode": True, "remote": {"host": "far"}}
    asked: dict[str, Any] = {"kv_transfer_params": given, "max_tokens": 3}
    whole = [plain(r) async for r in start(instance, PROMPT * 60, **asked)]
    topic, _, payload = await first_event(instance, subscriber)
    assert (topic, len(payload) > 0) == (b"", True)
    subscriber.close(0)
    (told,) = [reply for reply in whole if "kv_transfer_params" in reply]
    assert told is whole[-1]
    (text,) = told["kv_transfer_params"]
    assert json.loads(text)["given"] == given
    plainly = [plain(r) async for r in start(instance, max_tokens=3)]
    assert not any("kv_transfer_params" in reply for reply in plainly)


@pytest.mark.parametrize("name", ["data_parallel_rank", "x-data-parallel-rank"])
async def test_rank_is_the_engines_to_know(instance: RunningInstance, name: str) -> None:
    asked: dict[str, Any] = {"max_tokens": 2, name: "0"}
    assert [plain(r) async for r in start(instance, **asked)]
    for rank in (1, -1, "x", 1 << 40):
        with pytest.raises(InvalidRequestError, match=rf"(?i){name}|data_parallel_rank"):
            [plain(r) async for r in start(instance, **asked | {name: rank})]
    assert await instance.backend.healthy()


@pytest.mark.parametrize("given", [1, "x", "[1]", [1]])
async def test_parameters_of_transfers_are_an_object(instance: RunningInstance, given: Any) -> None:
    with pytest.raises(
        InvalidRequestError, match="'kv_transfer_params' must be an object, or JSON"
    ):
        [plain(r) async for r in start(instance, kv_transfer_params=given)]
