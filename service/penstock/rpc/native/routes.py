"""Routes calls by the path of their head to the class that serves them, refusals included."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.http2 import grpc_headers as responses
from penstock.http2.compression import ENCODINGS
from penstock.http2.grpc_headers import CallHead, read_call
from penstock.http2.hpack import Field
from penstock.rpc.context import Method, Service, StatusError
from penstock.rpc.native.calls import StreamCall, UnaryCall
from penstock.rpc.native.route import NO_METHOD, Route
from penstock.rpc.native.rpc_call import Call
from penstock.rpc.status import StatusCode

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


class Refused(Call):
    """Answered with an error as soon as it begins."""

    def on_open(self) -> None:
        head = self._head
        if not head.path:
            self.fail(StatusError(StatusCode.RESOURCE_EXHAUSTED, head.refusal))
        elif head.refusal:
            self.fail(StatusError(StatusCode.INTERNAL, head.refusal))
        elif self._method is NO_METHOD:
            self.run(self._method.handler(None, self))
        else:
            text = f"Compression algorithm '{head.encoding.decode('latin-1')}' is not supported"
            self.fail(StatusError(StatusCode.UNIMPLEMENTED, text), responses.ACCEPT)


class NotGrpc(Call):
    """Told what this is, when it has said all it has to say."""

    def on_data(self, data: memoryview) -> None:
        self.connection.consumed(self, len(data))

    def on_end(self) -> None:
        block, body = responses.no_grpc(self._head.http_status)
        self._outbox.respond_plainly(self, block, b"" if self._head.head_only else body)
        self._shell.wake()
