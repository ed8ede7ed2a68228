"""`Link`: one pass per read, one write per loop turn, silence after the end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from hosting.link.any_answers import ANY_ANSWERS
from hosting.puppets import PATIENCE, eventually
from penstock.core.buffer import Buffer
from penstock.hosting.link.link import Link, encode

Messages = list[tuple[int, Any, bytes]]


class RecordingTransport(asyncio.WriteTransport):
    """Keeps what is written, write by write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.writes.append(b"".join(list_of_data))

    def close(self) -> None:
        self.closed = True


class End:
    """One end of a link, and what came out of it."""

    def __init__(self, *, busy: bool = False, server: bool = True) -> None:
        self.messages: Messages = []
        self.losses = 0
        handlers = {kind: partial(self._message, kind) for kind in range(256)}
        decoders = ANY_ANSWERS if server else None
        self.link = Link(handlers, self._loss, lambda: busy, decoders)

    def _message(self, kind: int, header: Any, payload: memoryview) -> None:
        self.messages.append((kind, header, bytes(payload)))

    def _loss(self) -> None:
        self.losses += 1


def recording(*, busy: bool = False) -> tuple[Link, RecordingTransport]:
    link, transport = End(busy=busy).link, RecordingTransport()
    link.connection_made(transport)
    return link, transport


async def connected() -> tuple[End, End]:
    loop = asyncio.get_running_loop()
    ends = End(), End(server=False)
    for end, connection in zip(ends, socket.socketpair(), strict=True):
        await loop.create_unix_connection(lambda end=end: end.link, sock=connection)  # type: ignore[misc]
    return ends


async def test_what_is_held_leaves_with_the_turn() -> None:
    link, transport = recording()
    link.hold(1, "held")
    await asyncio.sleep(0)
    assert transport.writes == [b"".join(encode(1, "held"))]


async def test_what_is_held_for_a_busy_reader_leaves_with_what_is_sent_next() -> None:
    link, transport = recording(busy=True)
    link.hold(1, "held")
    await asyncio.sleep(0)
    assert transport.writes == []
    link.send(1, "sent")
    await asyncio.sleep(0)
    assert transport.writes == [b"".join([*encode(1, "held"), *encode(1, "sent")])]
    link.hold(1, "held again")
    await asyncio.sleep(0)
    assert len(transport.writes) == 1


async def test_what_is_held_leaves_when_it_is_released() -> None:
    link, transport = recording(busy=True)
    link.release()
    link.hold(1, "held")
    await asyncio.sleep(0)
    link.release()
    await asyncio.sleep(0)
    assert transport.writes == [b"".join(encode(1, "held"))]


async def test_what_is_held_leaves_before_the_end() -> None:
    link, transport = recording(busy=True)
    link.hold(1, "held")
    await asyncio.sleep(0)
    link.close()
    assert transport.writes == [b"".join(encode(1, "held"))]


async def test_everything_of_one_turn_leaves_in_one_write() -> None:
    link, transport = recording()
    for number in range(100):
        link.send(1, number, [b"payload"])
    assert transport.writes == []
    await asyncio.sleep(0)
    assert len(transport.writes) == 1


async def test_each_turn_has_its_own_write() -> None:
    link, transport = recording()
    for number in range(3):
        link.send(1, number)
        await asyncio.sleep(0)
    assert transport.writes == [b"".join(encode(1, number)) for number in range(3)]


async def test_flush_does_not_wait_for_the_turn() -> None:
    link, transport = recording()
    link.send(1, "now")
    link.flush()
    await asyncio.sleep(0)
    assert transport.writes == [b"".join(encode(1, "now"))]


async def test_frame_that_cannot_be_written_leaves_the_others_whole() -> None:
    link, transport = recording()
    link.send(1, "before")
    with pytest.raises(ValueError, match="unmarshallable"):
        link.send(1, object())
    link.send(1, "after")
    await asyncio.sleep(0)
    assert transport.writes == [b"".join([*encode(1, "before"), *encode(1, "after")])]


async def test_close_lets_out_what_was_sent() -> None:
    link, transport = recording()
    link.send(1, "last words")
    link.close()
    assert len(transport.writes) == 1
    assert transport.closed


async def test_send_before_and_after_the_connection_is_silent() -> None:
    end, transport = End(), RecordingTransport()
    end.link.send(1, "too early")
    end.link.connection_made(transport)
    end.link.send(1, "cut off")
    end.link.connection_lost(None)
    end.link.send(1, "too late")
    end.link.close()
    await asyncio.sleep(0)
    assert transport.writes == []
    assert end.losses == 1


async def test_messages_cross_a_socket_in_order() -> None:
    here, there = await connected()
    for number in range(5000):
        here.link.send(number % 256, number, [bytes(number % 7)])
    await eventually(lambda: len(there.messages) == 5000)
    assert there.messages == [(n % 256, n, bytes(n % 7)) for n in range(5000)]
    here.link.close()


async def test_large_message_crosses_a_socket() -> None:
    here, there = await connected()
    payload = bytes(range(256)) * (64 << 12)
    here.link.send(1, "large", [payload[:100], payload[100:]])
    here.link.send(2, "next")
    await eventually(lambda: len(there.messages) == 2)
    assert there.messages == [(1, "large", payload), (2, "next", b"")]
    here.link.close()


async def test_both_ends_hear_of_the_end_after_the_last_message() -> None:
    here, there = await connected()
    here.link.send(1, "bye", [bytes(1 << 20)])
    here.link.close()
    await asyncio.wait_for(eventually(lambda: there.losses == 1), PATIENCE)
    assert [header for _, header, _ in there.messages] == ["bye"]
    await eventually(lambda: here.losses == 1)


async def test_items_of_one_kind_share_a_frame_and_nothing_overtakes() -> None:
    here, there = await connected()
    here.link.add(1, "a", [b"x"])
    here.link.add(1, "b", [b"y"])
    here.link.send(2, "stop")
    here.link.add(1, "c")
    here.link.add(3, "d")
    await eventually(lambda: len(there.messages) == 4)
    assert there.messages == [
        (1, ["a", "b"], b"xy"),
        (2, "stop", b""),
        (1, ["c"], b""),
        (3, ["d"], b""),
    ]
    here.link.close()
    there.link.close()
