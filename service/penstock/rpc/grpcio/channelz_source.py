"""Channelz messages from the counters of grpcio."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar

from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from penstock.protocol import channelz_pb2 as pb

M = TypeVar("M", bound=Message)


class GrpcioChannelzSource:
    """The `ChannelzSource` of grpcio, whose counters cover all servers of the process.

    grpcio answers in the JSON form of channelz, and raises `ValueError` for unknown ids.
    """

    def servers(self, start: int) -> Iterator[pb.Server]:
        while True:
            answer = _answer(cygrpc.channelz_get_servers, max(start, 0))
            found = [_parsed(pb.Server(), one) for one in answer.get("server", ())]
            yield from found
            if answer.get("end") or not found:
                return
            start = found[-1].ref.server_id + 1

    def server(self, server_id: int) -> pb.Server:
        return _parsed(pb.Server(), _answer(cygrpc.channelz_get_server, server_id)["server"])

    def sockets(self, server_id: int, start: int) -> Iterator[pb.SocketRef]:
        self.server(server_id)
        return self._sockets(server_id, start)

    def _sockets(self, server_id: int, start: int) -> Iterator[pb.SocketRef]:
        while True:
            answer = _answer(cygrpc.channelz_get_server_sockets, server_id, max(start, 0), 0)
            found = [_parsed(pb.SocketRef(), one) for one in answer.get("socketRef", ())]
            yield from found
            if answer.get("end") or not found:
                return
            start = found[-1].socket_id + 1

    def socket(self, socket_id: int) -> pb.Socket:
        return _parsed(pb.Socket(), _answer(cygrpc.channelz_get_socket, socket_id)["socket"])


def _answer(ask: Any, *arguments: int) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(ask(*arguments))
    except ValueError as error:
        raise KeyError(*arguments[:1]) from error
    return answer


def _parsed(message: M, values: dict[str, Any]) -> M:
    # grpcio reports fields that the protocol does not have.
    ParseDict(values, message, ignore_unknown_fields=True)
    return message
