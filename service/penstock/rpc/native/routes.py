"""From the head of a call to what serves it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.http2.compression import ENCODINGS
from penstock.http2.grpc_requests import CallHead, read_call
from penstock.http2.hpack import Field
from penstock.rpc.context import Method, Service
from penstock.rpc.native.calls import StreamCall, UnaryCall
from penstock.rpc.native.refusals import NotGrpc, Refused
from penstock.rpc.native.route import NO_METHOD, Route
from penstock.rpc.native.rpc_call import Call

_READABLE = frozenset(ENCODINGS)


class Routes:
    """The methods of all services, by path."""

    def __init__(self, services: Iterable[Service]) -> None:
        self._methods = {
            f"/{service.name}/{method.name}": method
            for service in services
            for method in service.methods
        }

    def read(self, fields: tuple[Field, ...] | None) -> Route:
        """The route of a request; raises `MalformedError` for what is none."""
        head = read_call(fields)
        method = self._methods.get(head.path, NO_METHOD)
        return Route(head, method, _call(head, method))


def _call(head: CallHead, method: Method) -> Callable[..., Call]:
    if head.http_status:
        return NotGrpc
    if head.refusal or method is NO_METHOD or head.encoding not in _READABLE:
        return Refused
    return StreamCall if method.client_streaming else UnaryCall
