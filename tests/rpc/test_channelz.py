"""Channelz: what the server tells of its calls and of the connections to it."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
import pytest

from penstock.core.countdown import Countdown
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import DataType, Tensor
from penstock.protocol import channelz_pb2 as pb
from penstock.protocol import grpc_service_pb2, reflection_pb2
from penstock.rpc.channelz import NAME, page
from penstock.rpc.context import StatusError
from penstock.rpc.server import open_grpc
from penstock.rpc.status import StatusCode
from penstock.settings import (
    CompressionLevel,
    Feature,
    GrpcSettings,
    KeepaliveSettings,
    Restriction,
)
from rpc.certificates import tls, write_certificates
from rpc.manual import PATIENCE, ManualServer
from rpc.serving import SERVICE, Client, channel_to

LOCALHOST = ip_address("127.0.0.1").packed


class Alive(ManualServer):
    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def live(self) -> bool:
        return True

    def infer(self, request: InferenceRequest) -> ResponseStream:
        self.asked.set()
        return super().infer(request)


async def ask(channel: grpc.aio.Channel, name: str, **fields: Any) -> Any:
    """One method of channelz, by its generated messages."""
    request, response = getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response")
    return await channel.unary_unary(
        f"/{NAME}/{name}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )(request(**fields))


class Server:
    """An endpoint with channelz, and a channel that asks."""

    def __init__(self, port: int, channel: grpc.aio.Channel, native: bool) -> None:
        self.port = port
        self.channel = channel
        self.native = native

    async def ask(self, name: str, **fields: Any) -> Any:
        return await ask(self.channel, name, **fields)

    async def itself(self) -> pb.Server:
        """With grpcio, other servers of this process are listed too: ours is the last."""
        last: pb.Server = (await self.ask("GetServers")).server[-1]
        return last

    async def sockets(self) -> list[pb.Socket]:
        """Of all connections."""
        server = (await self.itself()).ref.server_id
        refs = (await self.ask("GetServerSockets", server_id=server)).socket_ref
        return [(await self.ask("GetSocket", socket_id=ref.socket_id)).socket for ref in refs]

    async def status(self, name: str, **fields: Any) -> grpc.StatusCode:
        """Of a request that fails."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.ask(name, **fields)
        return caught.value.code()


@asynccontextmanager
async def served(settings: GrpcSettings) -> AsyncIterator[Server]:
    settings = replace(settings, channelz=True)
    async with open_grpc(Alive(), settings, Countdown(0)) as port, channel_to(port) as channel:
        yield Server(port, channel, settings.transport == "native")


@pytest.fixture
async def server(local: GrpcSettings) -> AsyncIterator[Server]:
    async with served(local) as server:
        yield server


@asynccontextmanager
async def other_client(server: Server) -> AsyncIterator[Client]:
    """On a connection of its own."""
    await server.itself()  # so that the connection of who asks is the first
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options) as channel:
        yield Client(channel)


async def calm(server: Server) -> pb.ServerData:
    """The counts, when no call but the one that asks is under way."""
    async with asyncio.timeout(PATIENCE):
        while True:
            data = (await server.itself()).data
            if data.calls_started == data.calls_succeeded + data.calls_failed + 1:
                return data
            await asyncio.sleep(0.01)


async def until(
    server: Server, true: Callable[[list[pb.Socket]], bool], patience: float = PATIENCE
) -> list[pb.Socket]:
    """The connections, when something is true of them; nothing announces it."""
    end = time.monotonic() + patience
    while not true(sockets := await server.sockets()):
        assert time.monotonic() < end, "the condition did not come true in time"
        await asyncio.sleep(0.05)
    return sockets


async def test_calls_are_counted_by_how_they_end(server: Server) -> None:
    before = await calm(server)
    client = Client(server.channel)
    await client.call("ServerLive")
    with pytest.raises(grpc.aio.AioRpcError):
        await client.raw(f"/{SERVICE}/Nothing")
    with pytest.raises(grpc.aio.AioRpcError):
        await client.raw(f"/{SERVICE}/ServerLive", b"\xff")
    cancelled = client.stream()
    await cancelled.write(grpc_service_pb2.ModelInferRequest(model_name="once"))
    await asyncio.sleep(0.05)
    cancelled.cancel()
    after = await calm(server)
    asked = after.calls_started - before.calls_started - 4  # GetServers, as often as it took
    assert asked >= 1
    assert after.calls_failed - before.calls_failed == 3
    assert after.calls_succeeded - before.calls_succeeded == asked + 1
    assert abs(after.last_call_started_timestamp.seconds - time.time()) < 60


async def test_connections_are_listed_while_they_are_open(server: Server) -> None:
    (first,) = await server.sockets()
    async with other_client(server) as client:
        await client.call("ServerLive")
        one, other = await server.sockets()
        assert one.ref.socket_id == first.ref.socket_id < other.ref.socket_id
        assert one.remote.tcpip_address.port != other.remote.tcpip_address.port
    await until(server, lambda sockets: len(sockets) == 1)
    assert await server.status("GetSocket", socket_id=other.ref.socket_id) is (
        grpc.StatusCode.NOT_FOUND
    )


async def test_connection_tells_its_addresses(server: Server) -> None:
    (socket,) = await server.sockets()
    assert socket.local.tcpip_address.ip_address == LOCALHOST
    assert socket.local.tcpip_address.port == server.port
    assert socket.remote.tcpip_address.ip_address == LOCALHOST
    assert f"127.0.0.1:{socket.remote.tcpip_address.port}" in socket.ref.name
    assert not socket.HasField("security")


async def test_connection_counts_streams_and_messages(server: Server) -> None:
    async with other_client(server) as client:
        await client.call("ServerLive")
        before = (await server.sockets())[-1].data
        for _ in range(3):
            await client.call("ServerLive")
        with pytest.raises(grpc.aio.AioRpcError):
            await client.raw(f"/{SERVICE}/ModelInfer", b"")
        after = (await server.sockets())[-1].data
    assert after.streams_started - before.streams_started == 4
    assert after.streams_succeeded - before.streams_succeeded == 4  # an error ends a stream well
    assert after.streams_failed == before.streams_failed
    assert after.messages_received - before.messages_received == 4
    assert after.messages_sent - before.messages_sent == 3
    now = time.time()
    assert abs(after.last_remote_stream_created_timestamp.seconds - now) < 60
    assert abs(after.last_message_sent_timestamp.seconds - now) < 60
    assert not after.HasField("last_local_stream_created_timestamp")
    if server.native:  # grpcio leaves out windows that it does not know
        assert after.local_flow_control_window.value > 0
        assert after.remote_flow_control_window.value > 0


async def test_cancelled_stream_has_failed(server: Server) -> None:
    async with other_client(server) as client:
        await client.call("ServerLive")
        before = (await server.sockets())[-1].data
        call = client.stream()
        await call.write(grpc_service_pb2.ModelInferRequest(model_name="once"))
        await asyncio.sleep(0.05)
        call.cancel()
        data = (await until(server, lambda sockets: sockets[-1].data.streams_failed > 0))[-1].data
    assert data.streams_failed - before.streams_failed == 1
    assert data.streams_started - before.streams_started == 1
    assert data.streams_succeeded == before.streams_succeeded


async def test_call_that_is_left_while_its_response_is_compressed_has_failed() -> None:
    """64 MiB, which takes some tenths of a second."""
    model = Alive()
    settings = GrpcSettings(
        address="127.0.0.1",
        port=0,
        channelz=True,
        response_compression=CompressionLevel.MEDIUM,
    )
    async with open_grpc(model, settings, Countdown(0)) as port, channel_to(port) as channel:
        server = Server(port, channel, True)
        before = await calm(server)
        request = grpc_service_pb2.ModelInferRequest(model_name="once", id="large")
        call = Client(channel).method("ModelInfer")(request)
        await asyncio.wait_for(model.asked.wait(), PATIENCE)
        large = Tensor(DataType.UINT8, (64 << 20,), bytes(range(256)) * (1 << 18))
        model.streams["large"].send(InferenceResponse({"OUT": large}, final=True))
        await asyncio.sleep(0)
        call.cancel()
        after = await calm(server)
    assert after.calls_failed - before.calls_failed == 1


async def test_keepalives_are_counted(local: GrpcSettings) -> None:
    often = KeepaliveSettings(time_ms=1000, permit_without_calls=True)
    async with served(replace(local, keepalive=often)) as server, other_client(server) as idle:
        await idle.call("ServerLive")
        first = (await server.sockets())[-1].data.keep_alives_sent
        await until(server, lambda sockets: sockets[-1].data.keep_alives_sent > first)


async def test_server_tells_where_it_listens(server: Server) -> None:
    itself = await server.itself()
    (ref,) = itself.listen_socket
    socket = (await server.ask("GetSocket", socket_id=ref.socket_id)).socket
    assert socket.local.tcpip_address.ip_address == LOCALHOST
    if server.native:  # grpcio tells the port that was asked for
        assert ref.name == f"ipv4:127.0.0.1:{server.port}"
        assert socket.local.tcpip_address.port == server.port
    refs = (await server.ask("GetServerSockets", server_id=itself.ref.server_id)).socket_ref
    assert ref.socket_id not in {one.socket_id for one in refs}


async def test_server_is_told_by_its_id(server: Server) -> None:
    itself = await server.itself()
    again = (await server.ask("GetServer", server_id=itself.ref.server_id)).server
    assert again.ref == itself.ref
    assert again.data.calls_started == itself.data.calls_started + 1


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("GetServer", "server_id"),
        ("GetServerSockets", "server_id"),
        ("GetChannel", "channel_id"),
        ("GetSubchannel", "subchannel_id"),
        ("GetSocket", "socket_id"),
    ],
)
@pytest.mark.parametrize("number", [-1, 0, 2**31, 2**63 - 1])
async def test_what_nothing_has_the_id_of_is_not_found(
    server: Server, name: str, field: str, number: int
) -> None:
    assert await server.status(name, **{field: number}) is grpc.StatusCode.NOT_FOUND


async def test_id_of_something_else_is_not_found(server: Server) -> None:
    itself = await server.itself()
    wrong = itself.listen_socket[0].socket_id
    assert await server.status("GetServer", server_id=wrong) is grpc.StatusCode.NOT_FOUND
    wrong = itself.ref.server_id
    assert await server.status("GetSocket", socket_id=wrong) is grpc.StatusCode.NOT_FOUND


async def test_there_are_no_channels(server: Server) -> None:
    answer = await server.ask("GetTopChannels")
    assert (list(answer.channel), answer.end) == ([], True)


async def test_sockets_come_in_pages(server: Server) -> None:
    number = (await server.itself()).ref.server_id
    async with other_client(server) as second, other_client(server) as third:
        await second.call("ServerLive")
        await third.call("ServerLive")
        found: list[int] = []
        ends: list[bool] = []
        start = 0
        while not ends or not ends[-1]:
            answer = await server.ask(
                "GetServerSockets", server_id=number, start_socket_id=start, max_results=2
            )
            found += [ref.socket_id for ref in answer.socket_ref]
            ends.append(answer.end)
            start = found[-1] + 1
        assert (len(found), ends) == (3, [False, True])
        assert found == sorted(set(found))
        at_last = await server.ask(
            "GetServerSockets", server_id=number, start_socket_id=found[-1], max_results=1
        )
        assert [ref.socket_id for ref in at_last.socket_ref] == found[-1:]
        assert at_last.end
        beyond = await server.ask("GetServerSockets", server_id=number, start_socket_id=start)
        assert (list(beyond.socket_ref), beyond.end) == ([], True)


async def test_servers_begin_with_the_id_that_is_asked_for(server: Server) -> None:
    number = (await server.itself()).ref.server_id
    for start, found in ((-5, True), (number, True), (number + 1, False)):
        answer = await server.ask("GetServers", start_server_id=start)
        assert (number in {one.ref.server_id for one in answer.server}) is found
        assert answer.end


@pytest.mark.parametrize("name", ["GetTopChannels", "GetServers", "GetServerSockets"])
async def test_page_of_less_than_nothing_is_refused(server: Server, name: str) -> None:
    fields = {"max_results": -1}
    if name == "GetServerSockets":
        fields["server_id"] = (await server.itself()).ref.server_id
    assert await server.status(name, **fields) is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("there", "wanted", "got", "end"),
    [
        (0, 0, 0, True),
        (0, 3, 0, True),
        (3, 3, 3, True),
        (4, 3, 3, False),
        (100, 0, 100, True),
        (101, 0, 100, False),
        (500, 2**63 - 1, 500, True),
        (501, 2**63 - 1, 500, False),
    ],
)
def test_pages(there: int, wanted: int, got: int, end: bool) -> None:
    assert page(iter(range(there)), wanted) == (list(range(got)), end)


def test_negative_page() -> None:
    with pytest.raises(StatusError) as caught:
        page(iter([1]), -1)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT


async def test_tls_is_told(local: GrpcSettings, tmp_path: Path) -> None:
    certificates = write_certificates(tmp_path)
    settings = replace(local, channelz=True, tls=tls(certificates, mutual=True))
    root, key, certificate = (
        (certificates / name).read_bytes() for name in ("root.pem", "client.key", "client.pem")
    )
    credentials = grpc.ssl_channel_credentials(root, key, certificate)
    async with (
        open_grpc(Alive(), settings, Countdown(0)) as port,
        grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel,
    ):
        (socket,) = await Server(port, channel, True).sockets()
    told = socket.security.tls
    if local.transport == "grpcio":  # it tells no more than this, and in this form
        assert told.remote_certificate == certificate
        return
    assert told.standard_name.startswith("TLS_")
    ours = (certificates / "server.pem").read_text()
    assert told.local_certificate == ssl.PEM_cert_to_DER_cert(ours)
    assert told.remote_certificate == ssl.PEM_cert_to_DER_cert(certificate.decode())


async def test_unix_socket_is_told_by_its_path(tmp_path: Path) -> None:
    path = f"{tmp_path}/grpc.sock"
    settings = GrpcSettings(channelz=True, address=f"unix:{path}", port=0)
    async with (
        open_grpc(Alive(), settings, Countdown(0)),
        grpc.aio.insecure_channel(f"unix:{path}") as channel,
    ):
        server = Server(0, channel, True)
        (socket,) = await server.sockets()
        assert socket.local.uds_address.filename == path
        assert (await server.itself()).listen_socket[0].name == f"unix:{path}"


async def test_without_the_option_nobody_serves_it(local: GrpcSettings) -> None:
    async with open_grpc(Alive(), local, Countdown(0)) as port, channel_to(port) as channel:
        server = Server(port, channel, True)
        assert await server.status("GetServers") is grpc.StatusCode.UNIMPLEMENTED
        assert NAME not in await listed(channel)


async def test_reflection_lists_it(server: Server) -> None:
    assert NAME in await listed(server.channel)


async def listed(channel: grpc.aio.Channel) -> set[str]:
    """The services that reflection tells of."""
    call = channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    (answer,) = [answer async for answer in call]
    return {service.name for service in answer.list_services_response.service}


async def test_reflection_describes_it_with_all_that_it_imports(server: Server) -> None:
    call = server.channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )(iter([reflection_pb2.ServerReflectionRequest(file_containing_symbol=NAME)]))
    (answer,) = [answer async for answer in call]
    assert len(answer.file_descriptor_response.file_descriptor_proto) == 5


async def test_it_is_restricted_with_statistics(local: GrpcSettings) -> None:
    needed = Restriction(frozenset({Feature.STATISTICS}), "secret", "yes")
    async with served(replace(local, restrictions=(needed,))) as server:
        assert await server.status("GetServers") is grpc.StatusCode.UNAVAILABLE
