"""Whether channelz is served, and to whom."""

from __future__ import annotations

from dataclasses import replace

import grpc

from penstock.core.exit_deadline import ExitDeadline
from penstock.protocol import reflection_pb2
from penstock.rpc.channelz.servicer import NAME
from penstock.rpc.server import open_grpc
from penstock.settings import Feature, GrpcSettings, Restriction
from rpc.channelz.endpoint import Alive, Server, served
from rpc.serving import channel_to


async def test_channelz_is_not_served_without_the_option(local: GrpcSettings) -> None:
    async with open_grpc(Alive(), local, ExitDeadline(0)) as port, channel_to(port) as channel:
        server = Server(port, channel, True)
        assert await server.status("GetServers") is grpc.StatusCode.UNIMPLEMENTED
        assert NAME not in await listed(channel)


async def test_reflection_lists_it(server: Server) -> None:
    assert NAME in await listed(server.channel)


async def listed(channel: grpc.aio.Channel) -> set[str]:
    """The services that reflection lists."""
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
