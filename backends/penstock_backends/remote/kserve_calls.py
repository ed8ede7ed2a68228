"""gRPC calls: their header blocks, single questions, and the methods of KServe v2."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError

from penstock.http2.hpack import Field, encode
from penstock.protocol import grpc_service_pb2 as pb
from penstock_backends.remote.grpc_connection import INTERNAL, CallStatus, GrpcCall, Received
from penstock_backends.remote.grpc_endpoint import GrpcEndpoint
from penstock_backends.remote.settings import RemoteSettings

INFER, STREAM, READY, CONFIG, METADATA = (
    "ModelInfer",
    "ModelStreamInfer",
    "ModelReady",
    "ModelConfig",
    "ModelMetadata",
)
KSERVE_SERVICE = "inference.GRPCInferenceService"
_ANSWERS: dict[str, Any] = {
    READY: pb.ModelReadyResponse,
    CONFIG: pb.ModelConfigResponse,
    METADATA: pb.ModelMetadataResponse,
}
_LOAD = (b"endpoint-load-metrics-format", b"bin")
"""Asks for a report of the load with the answer."""
_FAIL_FAST = (b"triton_grpc_error", b"true")
"""Makes the error of a stream its status, with a code."""


class Heads:
    """The header blocks of calls, which are the same for each call of a method to an address."""

    def __init__(
        self,
        settings: RemoteSettings,
        service: str = KSERVE_SERVICE,
        fields: Iterable[Field] = (),
    ) -> None:
        self._settings = settings
        self._service = service
        self._fields = tuple(fields)
        self._made: dict[tuple[GrpcEndpoint, str], bytes] = {}

    def head(self, endpoint: GrpcEndpoint, method: str, fields: Iterable[Field] = ()) -> bytes:
        """The block of a call, with fields of its own; `method` may be a whole path."""
        made = self._made.get((endpoint, method))
        if made is None:
            made = self._made[endpoint, method] = self._make(endpoint, method)
        return made + encode(fields) if fields else made

    def _make(self, endpoint: GrpcEndpoint, method: str) -> bytes:
        address = endpoint.address
        fields = [
            (b":method", b"POST"),
            (b":scheme", b"https" if address.secure else b"http"),
            (b":path", (method if "/" in method else f"/{self._service}/{method}").encode()),
            (b":authority", address.authority.encode()),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", b"penstock-remote"),
            *self._settings.fields(address),
            *self._fields,
        ]
        if method == STREAM:
            fields.append(_FAIL_FAST)
        return encode(fields)


def timeout_field(seconds: float) -> Field:
    """The deadline of a call; a millisecond at least."""
    return b"grpc-timeout", b"%dm" % min(max(int(seconds * 1000), 1), 99_999_999)


class _Question(GrpcCall):
    """A call whose end somebody waits for."""

    def __init__(self) -> None:
        self.end: asyncio.Future[CallStatus] = asyncio.get_running_loop().create_future()
        self.message: bytes | None = None

    def received(self, message: Received) -> None:
        self.message = bytes(message)

    def ended(self, status: CallStatus) -> None:
        if not self.end.done():
            self.end.set_result(status)


async def ask(
    endpoint: GrpcEndpoint, heads: Heads, method: str, request: Any, answer: Any = None
) -> tuple[CallStatus, Any]:
    """Ask an address once: the end of the call, and the answer, `None` where it failed.

    `answer` is its class, where it is none of KServe's. Cancelling it cancels the call.
    """
    question = _Question()
    head = heads.head(endpoint, method, (_LOAD,))
    endpoint.start(question, head, request.SerializeToString())
    try:
        status = await question.end
    except asyncio.CancelledError:
        endpoint.cancel(question)
        raise
    endpoint.done()
    if status.code or question.message is None:
        return status, None
    try:
        return status, (answer or _ANSWERS[method]).FromString(question.message)
    except DecodeError as error:
        return CallStatus(INTERNAL, f"{method} answered with no message: {error}", ours=True), None
