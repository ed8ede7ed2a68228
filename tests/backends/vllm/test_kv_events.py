"""Publishers of KV events are listened to until they have sent something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock_backends.vllm.kv_events import KvEventsProof


def source(endpoint: str, publisher: str = "zmq", *, enabled: bool = True) -> Any:
    return SimpleNamespace(endpoint=endpoint, publisher=publisher, enable_kv_cache_events=enabled)


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("tcp://*:5557", "tcp://127.0.0.1:5557"),
        ("tcp://[::]:5558", "tcp://127.0.0.1:5558"),
        ("ipc:///tmp/events", "ipc:///tmp/events"),
    ],
)
def test_publisher_on_this_machine_can_be_heard(endpoint: str, address: str) -> None:
    complaint = KvEventsProof({0: source(endpoint)}).complaint
    assert complaint.startswith(f"no KV events come from {address}, ")


@pytest.mark.parametrize(
    "one",
    [
        source("tcp://collector:5557"),
        source("inproc://cache"),
        source("tcp://*:5557", "null"),
        source("tcp://*:5557", enabled=False),
    ],
)
async def test_others_are_nobodys_to_judge(one: Any) -> None:
    proof = KvEventsProof({0: one})

    async def fill(rank: int, attempt: int) -> None:
        raise AssertionError("nothing is to be stored")

    await proof.begin(fill)
    assert proof.complaint == ""
    await proof.close()
