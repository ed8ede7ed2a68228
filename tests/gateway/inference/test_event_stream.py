"""Streams of events on a connection that records what is written, and when."""

from __future__ import annotations

import asyncio
import re

import numpy as np

from gateway.connections.wire import wired_to
from gateway.serving import LOCAL, SilentServer
from penstock.core.delivery import deliver
from penstock.core.request import InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.gateway.app import gateway_router
from penstock.gateway.json.helper import JsonHelper

_BODY = b'{"IN": 1.0}'
_HEAD = b"POST /v2/models/numbers/generate_stream HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"


def _response(value: float) -> InferenceResponse:
    return InferenceResponse({"OUT": Tensor.from_numpy(np.array([value], np.float32))})


async def test_events_of_one_turn_of_the_loop_leave_in_one_write() -> None:
    server, helper = SilentServer(), JsonHelper()
    async with (
        asyncio.timeout(30),
        wired_to(gateway_router(server, LOCAL, helper).start) as (wire, transport),
    ):
        wire.deliver(_HEAD % len(_BODY) + _BODY)
        _, stream = await server.asked.get()
        for turn in range(2):
            before = len(transport.writes)
            for number in range(3):
                stream.send(_response(3 * turn + number))
            while len(transport.writes) == before:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            (written,) = transport.writes[before:]
            assert written.count(b"data: ") == 3
            assert b'"OUT":%d.0' % (3 * turn + 2) in written
        stream.end()
    helper.close()


async def test_events_that_a_slow_reader_makes_room_for_keep_their_order() -> None:
    """They come while those before them are taken, and not yet written."""
    server, helper = SilentServer(), JsonHelper()
    async with (
        asyncio.timeout(30),
        wired_to(gateway_router(server, LOCAL, helper).start) as (wire, transport),
    ):
        wire.deliver(_HEAD % len(_BODY) + _BODY)
        _, stream = await server.asked.get()
        wire.protocol.pause_writing()
        source = ResponseStream()
        for number in range(200):
            source.send(_response(number))
        source.end()
        deliver(source, stream)
        while not source.exhausted:
            wire.protocol.resume_writing()
            await asyncio.sleep(0)
    helper.close()
    numbers = re.findall(rb'"OUT":(\d+)\.0', transport.written)
    assert [*map(int, numbers)] == [*range(200)]
