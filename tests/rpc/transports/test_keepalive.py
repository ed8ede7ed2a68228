"""Connection age and ping limits, on both transports."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc
import pytest

from harness.raw_clients import hang_up
from penstock.core.exit_deadline import ExitDeadline
from penstock.rpc.server import open_grpc
from penstock.settings import GrpcSettings, KeepaliveSettings
from rpc.manual import PATIENCE, ManualServer
from rpc.serving import Client


class Alive(ManualServer):
    async def live(self) -> bool:
        return True


async def end_of(call: Any) -> grpc.StatusCode:
    """The status of a stream that the server ends."""
    code = await asyncio.wait_for(call.code(), PATIENCE)
    assert isinstance(code, grpc.StatusCode)
    return code


@pytest.mark.contract("GT-12", "SD-12", "K-14")
async def test_connection_ends_when_it_is_old_and_the_client_makes_another(
    local: GrpcSettings,
) -> None:
    ages = KeepaliveSettings(max_connection_age_ms=200, max_connection_age_grace_ms=200)
    async with (
        open_grpc(Alive(), replace(local, keepalive=ages), ExitDeadline(0)) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        client = Client(channel)
        assert await end_of(client.stream()) is not grpc.StatusCode.OK
        assert (await client.call("ServerLive", wait_for_ready=True)).live


@pytest.mark.contract("GT-12")
async def test_connection_that_may_grow_old_lasts(local: GrpcSettings) -> None:
    async with (
        open_grpc(Alive(), local, ExitDeadline(0)) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Client(channel).stream().code(), 0.6)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
PING = b"\0\0\x08\6\0\0\0\0\0" + b"12345678"
PINGED, GOAWAY, CALM_DOWN = 6, 7, 11
ACKNOWLEDGED = 1


async def frame(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """The next frame: its type, flags and payload."""
    head = await reader.readexactly(9)
    payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
    return head[3], head[4], payload


async def goaway(reader: asyncio.StreamReader) -> bytes:
    """The payload of the server's GOAWAY, from its error code on: the code and a text."""
    kind, _, payload = await frame(reader)
    while kind != GOAWAY:
        kind, _, payload = await frame(reader)
    return payload[4:]


async def flood(writer: asyncio.StreamWriter) -> None:
    """Ping until the server has had enough."""
    with suppress(ConnectionError):
        while not writer.is_closing():
            writer.write(PING)
            await writer.drain()
            await asyncio.sleep(0.02)


async def answer_to_ping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """The type of the frame that a ping is answered with: PING, or GOAWAY."""
    writer.write(PING)
    kind, flags = -1, 0
    while kind != GOAWAY and (kind, flags) != (PINGED, ACKNOWLEDGED):
        kind, flags, _ = await asyncio.wait_for(frame(reader), PATIENCE)
    return kind


@pytest.mark.contract("GT-10", "GT-11")
async def test_client_that_pings_too_often_is_sent_away(local: GrpcSettings) -> None:
    async with open_grpc(Alive(), local, ExitDeadline(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(PREFACE)
        pinging = asyncio.ensure_future(flood(writer))
        away = await asyncio.wait_for(goaway(reader), PATIENCE)
        pinging.cancel()
        await hang_up(writer)
    assert int.from_bytes(away[:4], "big") == CALM_DOWN
    assert away[4:] == b"too_many_pings"


@pytest.mark.contract("GT-10", "GT-11")
async def test_client_may_ping_as_often_as_it_is_allowed(local: GrpcSettings) -> None:
    lenient = replace(
        local,
        keepalive=KeepaliveSettings(
            min_recv_ping_interval_without_data_ms=1, permit_without_calls=True
        ),
    )
    async with open_grpc(Alive(), lenient, ExitDeadline(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(PREFACE)
        for _ in range(10):
            assert await answer_to_ping(reader, writer) == PINGED
            await asyncio.sleep(0.005)  # the next comes later than the shortest interval
        await hang_up(writer)


async def heard(port: int, seconds: float, last: int | None = None) -> tuple[set[int], bool]:
    """The types of the frames that a silent client gets, and whether it was hung up on.

    It leaves after a frame of the type `last`.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    kinds = set()
    try:
        async with asyncio.timeout(seconds):
            writer.write(PREFACE)
            while last not in kinds:
                kinds.add((await frame(reader))[0])
        return kinds, False
    except TimeoutError:
        return kinds, False
    except (asyncio.IncompleteReadError, ConnectionError):
        return kinds, True
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


@pytest.mark.contract("GT-06", "GT-07", "GT-08")
async def test_server_pings_a_silent_client_and_hangs_up_without_an_answer(
    local: GrpcSettings,
) -> None:
    watchful = KeepaliveSettings(time_ms=200, timeout_ms=200, permit_without_calls=True)
    async with open_grpc(Alive(), replace(local, keepalive=watchful), ExitDeadline(0)) as port:
        # grpcio was not seen to close the connection, whatever its settings.
        native = local.transport == "native"
        kinds, ended = await heard(port, PATIENCE, None if native else PINGED)
    assert PINGED in kinds
    assert ended == native


@pytest.mark.contract("GT-08", "GT-09")
async def test_server_does_not_ping_while_there_are_no_calls(local: GrpcSettings) -> None:
    quiet = KeepaliveSettings(time_ms=200, timeout_ms=200)
    async with open_grpc(Alive(), replace(local, keepalive=quiet), ExitDeadline(0)) as port:
        kinds, ended = await heard(port, 0.6)
    assert PINGED not in kinds
    assert not ended
