"""Routes calls by the path in their headers to the class that serves them, errors included."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from penstock.http2 import grpc as responses
from penstock.http2.grpc import ENCODINGS, CallHead, read_call
from penstock.http2.hpack import Field
from penstock.rpc.context import Method, RpcContext, Service, StatusError
from penstock.rpc.native.call import CallHost, RpcCall, UnaryCall
from penstock.rpc.native.stream_call import StreamCall
from penstock.rpc.status import StatusCode

_READABLE = frozenset(ENCODINGS)

HeaderFields = tuple[Field, ...] | None
"""The decoded header fields of a request; `None` if they are larger than allowed."""


async def _unimplemented(_: Any, __: RpcContext) -> None:
    raise StatusError(StatusCode.UNIMPLEMENTED, "")


_NO_METHOD = Method("", Message, Message, _unimplemented, eager=True)
"""The method of calls to an unknown path: answers UNIMPLEMENTED."""


@dataclass(frozen=True, slots=True)
class CallRoute:
    """The head, method and class of a call; shared by all calls with equal header blocks."""

    head: CallHead
    method: Method
    call: Callable[[CallHost, int, CallHead, Method], RpcCall]


class Routes:
    """The methods of all services, by path."""

    def __init__(self, services: Iterable[Service]) -> None:
        self._methods = {
            f"/{service.name}/{method.name}": method
            for service in services
            for method in service.methods
        }

    def read(self, fields: HeaderFields) -> CallRoute:
        """The route of a request; raises `MalformedError` if it is not valid HTTP/2."""
        head = read_call(fields)
        method = self._methods.get(head.path, _NO_METHOD)
        return CallRoute(head, method, _call_class(head, method))


def _call_class(
    head: CallHead, method: Method
) -> Callable[[CallHost, int, CallHead, Method], RpcCall]:
    if head.http_status:
        return NotGrpcCall
    if head.refusal or method is _NO_METHOD or head.encoding not in _READABLE:
        return RefusedCall
    if method.admits is not None:
        return _asked_call
    return StreamCall if method.client_streaming else UnaryCall


def _asked_call(host: CallHost, stream_id: int, head: CallHead, method: Method) -> RpcCall:
    """A call of a method that asks who calls: each time, since a policy may change meanwhile."""
    kind = StreamCall if method.client_streaming else UnaryCall
    call = kind(host, stream_id, head, method)
    if method.admits is None or method.admits(call):
        return call
    return RefusedCall(host, stream_id, head, method)


class RefusedCall(RpcCall):
    """A call that is answered with an error as soon as it is opened: no message of it is read."""

    def on_open(self) -> None:
        head = self._head
        if not head.path:
            self.fail(StatusError(StatusCode.RESOURCE_EXHAUSTED, head.refusal))
        elif head.refusal:
            self.fail(StatusError(StatusCode.INTERNAL, head.refusal))
        elif self._method is not _NO_METHOD and head.encoding not in _READABLE:
            text = f"Compression algorithm '{head.encoding.decode('latin-1')}' is not supported"
            self.fail(StatusError(StatusCode.UNIMPLEMENTED, text), responses.ACCEPT)
        else:  # there is no such method, or it does not admit the call's metadata
            self.run(self._method.handler(None, self))


class NotGrpcCall(RpcCall):
    """A request that is not gRPC: answered with plain text once its body is complete."""

    def on_data(self, data: memoryview) -> None:
        self.connection.consumed(self, len(data))

    def on_end(self) -> None:
        block, body = responses.no_grpc(self._head.http_status)
        if self._head.head_only:
            body = b""
        self._send_buffer.respond_without_trailers(self, block, body)
        self._host.wake()
