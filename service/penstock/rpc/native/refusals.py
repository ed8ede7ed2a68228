"""Calls that no method serves: what is not gRPC, what nobody knows, what cannot be read."""

from __future__ import annotations

from penstock.http2 import grpc_responses as responses
from penstock.rpc.context import StatusError
from penstock.rpc.native.route import NO_METHOD
from penstock.rpc.native.rpc_call import Call
from penstock.rpc.status import StatusCode


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
