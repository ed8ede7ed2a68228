"""A part of the messages that no model process of ours sends."""

from __future__ import annotations

import asyncio
import pickle
import struct
from typing import Any, cast

import pytest

from hosting.fuzzing.fuzzer import VALID, frame, inputs
from hosting.fuzzing.victim import Victim
from hosting.parent.services.calling_process import FakeServices
from penstock.hosting.link.messages import Kind
from penstock.hosting.parent.answer_types import DECODERS
from penstock.hosting.parent.services import ModelServices
from penstock.metrics.histogram import Histogram

_PICKLED = pickle.dumps([("O", "INT32", (2,))])
"""What other servers' processes send each other."""


async def _victim() -> Victim:
    victim = Victim(cast(ModelServices, FakeServices()))
    await victim.open()
    return victim


def test_every_kind_is_fuzzed() -> None:
    assert {kind for kind, _, _ in VALID} == set(DECODERS)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<IIB", 0, 5, 31) + b"[\0\0\0\0",  # reading it makes no progress
        struct.pack("<IIB", 2**32 - 1, 5, 31),
        struct.pack("<IIB", 2**31, 2**30, Kind.LOG),
        frame(Kind.INITIALIZE, {}, b""),
        frame(Kind.RESPONSE, (1, ([("O", "INT32", (2,), 4, -1)], {}, True, None)), b"abcd"),
        frame(Kind.RESPONSE, (1, ([("O", "UINT8", (9,), 9, 1 << 40)], {}, True, None)), b""),
        frame(Kind.COMMANDED, (7, "{}", None), b""),
        struct.pack("<IIB", len(_PICKLED), len(_PICKLED), Kind.RESPONSE) + _PICKLED,
    ],
)
async def test_who_breaks_the_protocol_is_killed(data: bytes) -> None:
    victim = await _victim()
    assert not victim.tell(data)
    victim.close()


async def test_a_process_whose_memory_is_freed_twice_goes_on() -> None:
    victim = await _victim()
    assert victim.tell(frame(Kind.FREE, [0, 0, 1 << 40, -1], b""))
    victim.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_nothing_else_of_the_server_is_harmed(seed: int) -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))
    victim, killed = await _victim(), 0
    for number, data in enumerate(inputs(seed, 500)):
        mark = {"mark": float(number)}
        goes_on = victim.tell(data) and victim.tell(frame(Kind.METRICS, mark, b""))
        Histogram.merged([*victim.process.histograms.values()][:1] or [[[], [0], 0.0, []]])
        assert all(type(value) is float for value in victim.process.metrics.values())
        if not goes_on or victim.process.metrics != mark:  # killed, or within a frame
            killed += not goes_on
            victim.close()
            victim = await _victim()
    victim.close()
    await asyncio.sleep(0)
    assert killed > 100
    assert failures == []
