"""The RPC seam over `grpc.aio`; the only module that imports grpc."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import quote_from_bytes

# Before grpc is imported: its newer listener costs a quarter more CPU a call.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from penstock.core.errors import InferenceError, InternalError
from penstock.rpc.context import Method, Service
from penstock.rpc.status import StatusCode, status_code
from penstock.settings import CompressionLevel, GrpcSettings, KeepaliveSettings, TlsSettings

logger = logging.getLogger(__name__)

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_LARGEST_MESSAGE = 2**31 - 1
_LONGEST_TEXT = 6144

_COMPRESSION = {
    CompressionLevel.NONE: grpc.Compression.NoCompression,
    CompressionLevel.LOW: grpc.Compression.Deflate,
    CompressionLevel.MEDIUM: grpc.Compression.Gzip,
    CompressionLevel.HIGH: grpc.Compression.Gzip,
}

Call = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]


class GrpcioContext:
    """`RpcContext` over a servicer context of `grpc.aio`."""

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self._context = context

    @property
    def metadata(self) -> Mapping[str, str]:
        pairs = self._context.invocation_metadata() or ()
        return {key: value for key, value in pairs if isinstance(value, str)}

    @property
    def deadline(self) -> float | None:
        left = self._context.time_remaining()
        return None if left is None else asyncio.get_running_loop().time() + left

    async def write(self, message: Message) -> None:
        try:
            await self._context.write(message)
        except (cygrpc.ExecuteBatchError, cygrpc.InternalError) as error:
            raise asyncio.CancelledError from error  # the client is gone; grpc is about to say so


@asynccontextmanager
async def open_grpcio(
    services: Iterable[Service], settings: GrpcSettings, grace: float
) -> AsyncIterator[int]:
    """Serve `services`; yields the port. Running calls get `grace` seconds on closing."""
    server = grpc.aio.server(
        options=_options(settings), compression=_COMPRESSION[settings.response_compression]
    )
    server.add_generic_rpc_handlers(tuple(map(_handlers, services)))
    port = _listen(server, settings)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(grace)


def _handlers(service: Service) -> grpc.GenericRpcHandler[Any, Any]:
    methods = {method.name: _handler(method) for method in service.methods}
    return grpc.method_handlers_generic_handler(service.name, methods)


def _handler(method: Method) -> Any:
    make = (
        grpc.stream_stream_rpc_method_handler
        if method.streaming
        else grpc.unary_unary_rpc_method_handler
    )
    # Requests come as bytes, since grpc calls those that cannot be parsed a fault of ours.
    return make(_guarded(method), response_serializer=method.response.SerializeToString)


def _guarded(method: Method) -> Call:
    """The method's handler, with errors mapped to a status."""

    parsed = partial(_messages if method.streaming else _parse, method.request)

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await method.handler(parsed(request), GrpcioContext(context))
        except InferenceError as error:
            await _abort(context, status_code(error), error.message)
        except Exception:  # a fault of ours must end as a status, and be seen in the log
            logger.exception("%s failed", method.name)
            await _abort(context, StatusCode.INTERNAL, "internal error; see the server's log")
        return None

    return call


async def _messages(kind: type[Message], stream: AsyncIterator[bytes]) -> AsyncIterator[Message]:
    async for data in stream:
        yield _parse(kind, data)


def _parse(kind: type[Message], data: bytes) -> Message:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InternalError("Unable to parse request") from error


async def _abort(
    context: grpc.aio.ServicerContext[Any, Any], code: StatusCode, message: str
) -> None:
    await context.abort(_CODES[code.value], _sendable(message))


def _sendable(message: str) -> str:
    """What of a message clients can take: they refuse trailers of more than 8 KiB.

    Characters beyond ASCII take up to three bytes for each of theirs on the way.
    """
    data = message.encode(errors="replace")
    if len(quote_from_bytes(data)) <= _LONGEST_TEXT:
        return data.decode()
    return data[: _LONGEST_TEXT // 3].decode(errors="ignore") + " ... (cut; see the server's log)"


def _listen(server: grpc.aio.Server, settings: GrpcSettings) -> int:
    address = f"{_host(settings.address)}:{settings.port}"
    try:
        if settings.tls.enabled:
            port = server.add_secure_port(address, _credentials(settings.tls))
        else:
            port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if not port:
        raise OSError(f"Socket '{settings.address}:{settings.port}' already in use ")
    return port


def _host(address: str) -> str:
    """`ipv6:[::1]` is how the command line writes such addresses; gRPC wants just the host."""
    return address.removeprefix("ipv6:")


def _credentials(tls: TlsSettings) -> grpc.ServerCredentials:
    root = _read(tls.root_certificate)
    return grpc.ssl_server_credentials(
        [(_read(tls.key) or b"", _read(tls.certificate) or b"")], root, tls.mutual
    )


def _read(path: str) -> bytes | None:
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()


def _options(settings: GrpcSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_send_message_length", _LARGEST_MESSAGE),
        ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
        ("grpc.so_reuseport", int(settings.reuse_port)),
        *_keepalive(settings.keepalive),
    ]


def _keepalive(keepalive: KeepaliveSettings) -> Iterable[tuple[str, int]]:
    yield "grpc.keepalive_time_ms", keepalive.time_ms
    yield "grpc.keepalive_timeout_ms", keepalive.timeout_ms
    yield "grpc.keepalive_permit_without_calls", int(keepalive.permit_without_calls)
    yield "grpc.http2.max_pings_without_data", keepalive.max_pings_without_data
    yield (
        "grpc.http2.min_recv_ping_interval_without_data_ms",
        keepalive.min_recv_ping_interval_without_data_ms,
    )
    yield "grpc.http2.max_ping_strikes", keepalive.max_ping_strikes
    if keepalive.max_connection_age_ms is not None:
        yield "grpc.max_connection_age_ms", keepalive.max_connection_age_ms
    if keepalive.max_connection_age_grace_ms is not None:
        yield "grpc.max_connection_age_grace_ms", keepalive.max_connection_age_grace_ms
