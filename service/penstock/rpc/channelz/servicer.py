"""The service `grpc.channelz.v1.Channelz`, over the counters of a transport."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NoReturn, TypeVar

from google.protobuf.message import Message

from penstock.protocol import channelz_pb2 as pb
from penstock.rpc.channelz.source import ChannelzRegistry
from penstock.rpc.context import Method, RpcContext, Service, StatusError, method_name
from penstock.rpc.status import StatusCode

NAME = "grpc.channelz.v1.Channelz"

_PAGE = 100
_LARGEST_PAGE = 500

T = TypeVar("T")


class ChannelzServicer:
    """Handlers of channelz requests. The server opens no channels, so none are listed."""

    def __init__(self, registry: ChannelzRegistry) -> None:
        self._registry = registry

    def service(self) -> Service:
        """The service with its methods."""
        handlers = (
            self.GetTopChannels,
            self.GetServers,
            self.GetServer,
            self.GetServerSockets,
            self.GetChannel,
            self.GetSubchannel,
            self.GetSocket,
        )
        named = ((method_name(handler), handler) for handler in handlers)
        return Service(
            NAME,
            [
                Method(name, getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response"), handler)
                for name, handler in named
            ],
        )

    async def GetTopChannels(self, request: pb.GetTopChannelsRequest, _: RpcContext) -> Message:
        channels: Iterator[pb.Channel] = iter(())
        found, end = page(channels, request.max_results)
        return pb.GetTopChannelsResponse(channel=found, end=end)

    async def GetServers(self, request: pb.GetServersRequest, _: RpcContext) -> Message:
        servers = self._registry.source.servers(request.start_server_id)
        found, end = page(servers, request.max_results)
        return pb.GetServersResponse(server=found, end=end)

    async def GetServer(self, request: pb.GetServerRequest, _: RpcContext) -> Message:
        try:
            server = self._registry.source.server(request.server_id)
        except KeyError:
            _missing("server", request.server_id)
        return pb.GetServerResponse(server=server)

    async def GetServerSockets(self, request: pb.GetServerSocketsRequest, _: RpcContext) -> Message:
        connections = self._registry.source
        try:
            sockets = connections.sockets(request.server_id, request.start_socket_id)
        except KeyError:
            _missing("server", request.server_id)
        found, end = page(sockets, request.max_results)
        return pb.GetServerSocketsResponse(socket_ref=found, end=end)

    async def GetChannel(self, request: pb.GetChannelRequest, _: RpcContext) -> Message:
        _missing("channel", request.channel_id)

    async def GetSubchannel(self, request: pb.GetSubchannelRequest, _: RpcContext) -> Message:
        _missing("subchannel", request.subchannel_id)

    async def GetSocket(self, request: pb.GetSocketRequest, _: RpcContext) -> Message:
        try:
            socket = self._registry.source.socket(request.socket_id)
        except KeyError:
            _missing("socket", request.socket_id)
        return pb.GetSocketResponse(socket=socket)


def page(items: Iterator[T], wanted: int) -> tuple[list[T], bool]:
    """The first `wanted` items (a default number for 0), and whether there are no more."""
    if wanted < 0:
        raise StatusError(StatusCode.INVALID_ARGUMENT, "max_results must not be negative")
    found = list(islice(items, min(wanted or _PAGE, _LARGEST_PAGE)))
    return found, next(items, None) is None


def _missing(kind: str, number: int) -> NoReturn:
    raise StatusError(StatusCode.NOT_FOUND, f"no {kind} has the id {number}")
