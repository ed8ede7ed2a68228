"""The methods of `penstock.v1.Releases`: aliases over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from penstock.core.errors import UnavailableError
from penstock.protocol import releases_pb2 as pb
from penstock.rpc.context import Method, RpcContext, Service, Unary, method_name
from penstock.rpc.status import STOPPED
from penstock.server.server import InferenceServer

NAME = "penstock.v1.Releases"

_DEFINED = ("targets", "sticky", "guard", "shadow")


class ReleasesServicer:
    """Handlers of the service: the facade decides, these translate."""

    def __init__(self, server: InferenceServer) -> None:
        self._server = server

    def service(self) -> Service:
        """The service with its methods."""
        shows: list[Unary] = [self.AliasShow, self.AliasSet, self.AliasPromote, self.AliasRollback]
        methods = [_method(handler, pb.AliasShowResponse) for handler in shows]
        methods.append(_method(self.AliasList, pb.AliasListResponse))
        methods.append(_method(self.AliasRemove, pb.AliasRemoveResponse))
        watch = Method(
            "AliasWatch",
            pb.AliasWatchRequest,
            pb.AliasWatchResponse,
            self.AliasWatch,
            server_streaming=True,
            endless=True,
        )
        return Service(NAME, [*methods, watch])

    async def AliasList(self, _: pb.AliasListRequest, __: RpcContext) -> Message:
        aliases = [
            {"name": one["name"], "definition": _definition(one)}
            for one in self._server.releases.listed()
        ]
        return ParseDict({"aliases": aliases}, pb.AliasListResponse())

    async def AliasShow(self, message: pb.AliasShowRequest, _: RpcContext) -> Message:
        return self._shown(message.name)

    async def AliasSet(self, message: pb.AliasSetRequest, _: RpcContext) -> Message:
        self._server.check_model_control()
        fields = {"targets": [], **_fields(message.definition)}
        self._server.releases.set(message.name, fields)
        return self._shown(message.name)

    async def AliasRemove(self, message: pb.AliasRemoveRequest, _: RpcContext) -> Message:
        self._server.check_model_control()
        self._server.releases.remove(message.name)
        return pb.AliasRemoveResponse()

    async def AliasPromote(self, message: pb.AliasPromoteRequest, _: RpcContext) -> Message:
        self._server.check_model_control()
        fields = _fields(message)
        fields.pop("name", None)
        self._server.releases.promote(message.name, fields)
        return self._shown(message.name)

    async def AliasRollback(self, message: pb.AliasRollbackRequest, _: RpcContext) -> Message:
        self._server.check_model_control()
        self._server.releases.roll_back(message.name)
        return self._shown(message.name)

    async def AliasWatch(self, message: pb.AliasWatchRequest, context: RpcContext) -> NoReturn:
        """Tell changes as they happen, until the client or the server goes."""
        stopping = asyncio.ensure_future(self._server.wait_stopping())
        coming = None
        try:
            with self._server.releases.watching() as changes:
                await context.write(pb.AliasWatchResponse())
                while not stopping.done():
                    coming = asyncio.ensure_future(changes.get())
                    await asyncio.wait([coming, stopping], return_when=asyncio.FIRST_COMPLETED)
                    if coming.done():
                        name, change = coming.result()
                        if message.name in ("", name):
                            told = {"name": name, "change": _change(change)}
                            await context.write(ParseDict(told, pb.AliasWatchResponse()))
        finally:
            stopping.cancel()
            if coming is not None:
                coming.cancel()
        raise UnavailableError(STOPPED)

    def _shown(self, name: str) -> Message:
        shown = self._server.releases.shown(name)
        told = {key: value for key, value in shown.items() if key not in _DEFINED}
        if "targets" in shown:
            told["definition"] = _definition(shown)
        told["history"] = [*map(_change, shown["history"])]
        return ParseDict(told, pb.AliasShowResponse())


def _method(handler: Unary, response: type[Message]) -> Method:
    name = method_name(handler)
    return Method(name, getattr(pb, f"{name}Request"), response, handler)


def _definition(shown: Mapping[str, Any]) -> dict[str, Any]:
    return {key: shown[key] for key in _DEFINED if key in shown}


def _change(change: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in change.items() if value is not None}


def _fields(message: Message) -> dict[str, Any]:
    """The fields of a message that are set, as plain values."""
    return {field.name: _plain(value) for field, value in message.ListFields()}


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return _fields(value)
    if isinstance(value, str | int | float) or not isinstance(value, Sequence):
        return value
    return [_plain(one) for one in value]
