"""The gRPC transport over `grpc.aio`: call contexts, handlers, and the server."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast
from urllib.parse import unquote

# Before grpc is imported: its newer listener costs a quarter more CPU a call.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from penstock.access.certificate_names import names_of_kinds
from penstock.access.policy import Permit
from penstock.core.errors import InferenceError
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.log.log_fields import error_fields
from penstock.core.log.log_throttle import log_fault
from penstock.protocol.credentials import text_metadata
from penstock.rpc.channelz.source import ChannelzRegistry
from penstock.rpc.context import (
    Metadata,
    Method,
    Reply,
    Service,
    StatusError,
    parsed_in_turns,
    serialized,
)
from penstock.rpc.grpcio.channelz_source import GrpcioChannelzSource
from penstock.rpc.grpcio.listening import listen, options
from penstock.rpc.status import StatusCode, retry_metadata, status_code, truncate_message
from penstock.settings import CompressionLevel, GrpcSettings
from penstock.system.body_room import BodyRoom
from penstock.system.certificates import ServerCertificates
from penstock.system.fd_reserve import DescriptorReserve

logger = logging.getLogger(__name__)

_CODES = {code.value[0]: code for code in grpc.StatusCode}

_COMPRESSION = {
    CompressionLevel.NONE: grpc.Compression.NoCompression,
    CompressionLevel.LOW: grpc.Compression.Deflate,
    CompressionLevel.MEDIUM: grpc.Compression.Gzip,
    CompressionLevel.HIGH: grpc.Compression.Gzip,
}

_KINDS: dict[tuple[bool, bool], Callable[..., Any]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
"""By whether requests and responses are streams."""

_CUT_WITHIN = 0.2
"""Seconds to the exit's deadline within which grpc's server, not a client, cancels a call."""

_Handler = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]


class GrpcioContext:
    """The `RpcContext` over a servicer context of `grpc.aio`.

    One task writes, and continues when the handler that awaits it is cancelled: a status that is
    sent after a cancelled write may never reach the client.
    """

    request_compressed: bool | None = None
    writes_at_once = False
    authority = ""  # grpc.aio does not tell it
    trace_id: int = 0
    permit: Permit | None = None

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self._context = context
        self.opened = time.monotonic_ns()
        self._initial: Metadata | None = None
        self._trailing: list[tuple[str, str | bytes]] = []
        self._waiting: deque[Reply] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._compress = True
        self._closed = False

    @property
    def metadata(self) -> Mapping[str, str]:
        return text_metadata(self.metadata_fields)

    @property
    def metadata_fields(self) -> Metadata:
        return tuple((key, value) for key, value in self._context.invocation_metadata() or ())

    @property
    def deadline(self) -> float | None:
        # The stubs do not know that it is None without a deadline.
        left = cast("float | None", self._context.time_remaining())
        return None if left is None else asyncio.get_running_loop().time() + left

    @property
    def peer(self) -> str:
        return "" if self._closed else unquote(self._context.peer())  # else grpc would crash

    @property
    def certificate(self) -> Sequence[str]:
        shown = self._context.auth_context()
        kinds = (("URI", "peer_uri"), ("DNS", "peer_dns"))
        return names_of_kinds(
            (kind, text.decode("utf-8", "replace"))
            for kind, name in kinds
            for text in shown.get(name, ())
        )

    def set_initial_metadata(self, metadata: Metadata) -> None:
        self._initial = metadata

    async def begin(self) -> None:
        self._initial = self._initial or ()
        self._start_writing()
        await self.writable()

    def add_trailing_metadata(self, metadata: Metadata) -> None:
        self._trailing += metadata
        self._context.set_trailing_metadata(tuple(self._trailing))

    def compress_responses(self, wanted: bool) -> None:
        if wanted and self._initial is None:
            self._context.set_compression(grpc.Compression.Gzip)
        self._compress = wanted

    async def write(self, message: Reply) -> None:
        self.write_nowait(message)
        await self.writable()

    def write_nowait(self, message: Reply) -> bool:
        self._waiting.append(message)
        self._start_writing()
        return False

    async def writable(self) -> None:
        if self._writer is not None:
            await asyncio.shield(self._writer)

    async def flush(self) -> None:
        """Send all written messages, and the initial metadata, if there is any."""
        await self.writable()
        await self._prepare()

    def close(self) -> None:
        """Stop writing: the handler has ended."""
        self._closed = True
        if self._writer is not None:
            self._writer.cancel()

    def _start_writing(self) -> None:
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._send_waiting())

    async def _send_waiting(self) -> None:
        try:
            await self._prepare()
            while self._waiting:
                await self._send(self._waiting.popleft())
        finally:
            self._writer = None

    async def _send(self, message: Reply) -> None:
        await self._prepare()
        try:
            await self._context.write(message)
        except (cygrpc.ExecuteBatchError, cygrpc.InternalError) as error:
            raise asyncio.CancelledError from error  # the client is gone; grpc will cancel the call

    async def _prepare(self) -> None:
        """Send or set what precedes the next message: metadata, compression."""
        if self._initial is not None:
            metadata, self._initial = self._initial, None
            await self._context.send_initial_metadata(tuple(metadata))
        if not self._compress:
            self._context.disable_next_message_compression()


@asynccontextmanager
async def open_grpcio(
    services: Iterable[Service],
    settings: GrpcSettings,
    grace: ExitDeadline,
    *,
    registry: ChannelzRegistry | None = None,
    descriptors: DescriptorReserve | None = None,
    bodies: BodyRoom | None = None,
    certificates: ServerCertificates | None = None,
) -> AsyncIterator[int]:
    """Serve `services`; yields the port. Running calls get what is left of `grace` on closing.

    With a `registry`, grpc counts for channelz, and its counters are registered there. It opens
    sockets and reads messages by itself: `descriptors` and `bodies` do not count them.
    `certificates` are those of the settings, followed.
    """
    del descriptors, bodies
    if registry is not None:
        registry.source = GrpcioChannelzSource()
    server = grpc.aio.server(
        options=[*options(settings), ("grpc.enable_channelz", int(registry is not None))],
        compression=_COMPRESSION[settings.response_compression],
    )
    most = settings.max_control_message_size
    # A certificate is not known before a message is read: then handlers refuse calls themselves.
    early = not settings.tls.mutual
    handlers = [each for service in services for each in _handlers(service, grace, most, early)]
    server.add_generic_rpc_handlers((*handlers, _Unknown()))
    port = listen(server, settings, certificates or ServerCertificates("gRPC", settings.tls))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(grace.left())


def _handlers(
    service: Service, grace: ExitDeadline, most: int, early: bool
) -> Iterable[grpc.GenericRpcHandler[Any, Any]]:
    restricted = [method for method in service.methods if early and method.admits is not None]
    yield _Forbidden(service.name, restricted, grace)
    methods = {method.name: _handler(method, grace, most) for method in service.methods}
    yield grpc.method_handlers_generic_handler(service.name, methods)


class _Head:
    """A call of which only its metadata is known yet."""

    permit: Permit | None = None
    certificate: Sequence[str] = ()

    def __init__(self, metadata: Mapping[str, str]) -> None:
        self.metadata = metadata


class _Forbidden(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Answers calls whose metadata their methods do not admit, before a message is received."""

    def __init__(self, service: str, methods: Iterable[Method], grace: ExitDeadline) -> None:
        self._methods = {f"/{service}/{method.name}": method for method in methods}
        self._grace = grace

    def service(self, call: grpc.HandlerCallDetails) -> Any:
        method = self._methods.get(call.method)
        if method is None or method.admits is None:
            return None
        fields = call.invocation_metadata or ()
        if method.admits(_Head(text_metadata(fields))):
            return None
        # Of this kind, the call is handled without waiting for a message.
        refusing = replace(method, client_streaming=True)
        return grpc.stream_stream_rpc_method_handler(_guarded(refusing, self._grace, 0))


class _Unknown(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Answers unknown methods, without a message as Triton does."""

    def service(self, _: grpc.HandlerCallDetails) -> Any:
        return grpc.stream_stream_rpc_method_handler(_unknown)


async def _unknown(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "")


def _handler(method: Method, grace: ExitDeadline, most: int) -> Any:
    make = _KINDS[method.client_streaming, method.server_streaming]
    # Requests are passed as bytes: grpc would report one that cannot be parsed as a server fault.
    return make(_guarded(method, grace, most), response_serializer=serialized)


def _guarded(method: Method, grace: ExitDeadline, most: int) -> _Handler:
    """The method's handler, with errors mapped to a status."""

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        rpc_context = GrpcioContext(context)
        try:
            return await _answer(method, request, rpc_context, most)
        except InferenceError as error:
            failure = StatusError(status_code(error), error.message)
            if later := retry_metadata(error):
                rpc_context.add_trailing_metadata(later)
        except StatusError as error:
            failure = error
        except Exception as error:  # a fault of the server ends as a status, with a line in the log
            log_fault(logger, error, "%s failed", method.name, extra=error_fields(error))
            failure = StatusError(StatusCode.INTERNAL, "internal error; see the server's log")
        except asyncio.CancelledError:
            if grace.started and grace.left() < _CUT_WITHIN:
                grace.cut(1)
            raise
        finally:
            rpc_context.close()
        return await _abort(context, failure)

    return call


async def _answer(method: Method, request: Any, context: GrpcioContext, most: int) -> Any:
    """Run the handler; returns or raises after all that it wrote is sent.

    `most` is the size of a message that carries no tensors or files, at most.
    """
    try:
        if method.client_streaming:
            requests = _messages(method, request, most)
            response = await method.handler(requests, context)
        else:
            response = await method.handler(await _parse(method, request, most), context)
    except Exception:
        await context.flush()
        raise
    await context.flush()
    return response


async def _messages(method: Method, stream: AsyncIterator[bytes], most: int) -> AsyncIterator[Any]:
    async for data in stream:
        yield await _parse(method, data, most)


async def _parse(method: Method, data: bytes, most: int) -> Any:
    if len(data) > most and not method.unbounded:
        text = f"Received message larger than max ({len(data)} vs. {most})"
        raise StatusError(StatusCode.RESOURCE_EXHAUSTED, text)
    return await parsed_in_turns(method, data)


async def _abort(context: grpc.aio.ServicerContext[Any, Any], failure: StatusError) -> None:
    trailing = tuple(context.trailing_metadata() or ())
    if failure.details:
        trailing += (("grpc-status-details-bin", failure.details),)
    await context.abort(_CODES[failure.code.value], truncate_message(failure.message), trailing)
