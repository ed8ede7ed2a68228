"""The transport over gRPC, by grpcio's asyncio channel."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol import releases_pb2 as aliases
from penstock.protocol.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from penstock.protocol.releases_pb2_grpc import ReleasesStub
from penstock_client.client import grpc_messages as messages
from penstock_client.client.errors import (
    ClientError,
    UnknownError,
    connection_lost,
    deadline_exceeded,
    error_of,
    no_server,
)
from penstock_client.client.request import InferRequest, Result
from penstock_client.client.transport import Connection, Tls
from penstock_client.reading.address import ServerAddress
from penstock_client.reading.views import ModelEntry, ModelMetadata, ModelStatistics, ServerMetadata

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A server that comes back is noticed soon, and not after minutes. The least time between two
    # attempts stays gRPC's: it is also what a server, however busy, has to greet a client in.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
)
_STREAM_ERRORS = ("triton_grpc_error", "true")
"""The metadata that makes the error of a stream its status, with a code."""

_AT_THE_DEADLINE = 0.02
"""Seconds before the deadline from which on an error is taken for its effect."""

_END: Any = vars(grpc.aio)["EOF"]  # which the stubs of grpc do not know

_UNRESOLVED = ("errors resolving", "DNS resolution failed")
_NOT_CONNECTED = ("failed to connect to all addresses", "empty address", *_UNRESOLVED)
_LOST = ("Socket closed", "Connection reset", "Broken pipe", "GOAWAY", "Stream removed", "recvmsg")


class GrpcTransport:
    """The calls to one server over one channel."""

    def __init__(self, address: ServerAddress, connection: Connection) -> None:
        self.address = address
        self._metadata = tuple((k.lower(), v) for k, v in connection.headers.items())
        if address.secure:
            credentials = _credentials(connection.tls)
            self._channel = grpc.aio.secure_channel(address.target, credentials, _OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(address.target, _OPTIONS)
        self._stub: Any = GRPCInferenceServiceStub(self._channel)
        self._aliases: Any = ReleasesStub(self._channel)

    # -- inference ----------------------------------------------------------------------------

    async def infer(self, request: InferRequest, timeout: float | None) -> Result:
        """The only response of a model."""
        reply = await self._call(self._stub.ModelInfer, messages.encode(request), timeout)
        return messages.decode(reply, request)

    async def stream(
        self, request: InferRequest, timeout: float | None
    ) -> AsyncGenerator[Result, None]:
        """The responses of a model; closing the generator cancels the request."""
        began = time.monotonic()
        call = self._stub.ModelStreamInfer(
            timeout=timeout, metadata=(*self._metadata, _STREAM_ERRORS)
        )
        try:
            await call.write(messages.encode(request, streamed=True))
            await call.done_writing()
            while (reply := await call.read()) is not _END:
                if reply.error_message:
                    raise UnknownError(reply.error_message, str(self.address))
                answer = reply.infer_response
                if answer.outputs or not messages.is_final(answer):
                    yield messages.decode(answer, request)
        except grpc.aio.AioRpcError as error:
            # Triton ends streams whose time is over with an error of its own, which may be first.
            if timeout is not None and time.monotonic() - began > timeout - _AT_THE_DEADLINE:
                raise deadline_exceeded(str(self.address)) from None
            raise self._failure(error) from None
        finally:
            call.cancel()  # does nothing to a call that has ended

    # -- health and views ---------------------------------------------------------------------

    async def live(self, timeout: float | None) -> bool:
        """Whether the server runs."""
        reply = await self._call(self._stub.ServerLive, pb.ServerLiveRequest(), timeout)
        return bool(reply.live)

    async def ready(self, timeout: float | None) -> bool:
        """Whether the server takes requests."""
        reply = await self._call(self._stub.ServerReady, pb.ServerReadyRequest(), timeout)
        return bool(reply.ready)

    async def model_ready(self, model: str, version: str, timeout: float | None) -> bool:
        """Whether a model takes requests."""
        request = pb.ModelReadyRequest(name=model, version=version)
        return bool((await self._call(self._stub.ModelReady, request, timeout)).ready)

    async def server_metadata(self, timeout: float | None) -> ServerMetadata:
        """The metadata of the server."""
        request = pb.ServerMetadataRequest()
        reply = await self._call(self._stub.ServerMetadata, request, timeout)
        return ServerMetadata(reply.name, reply.version, tuple(reply.extensions))

    async def model_metadata(
        self, model: str, version: str, timeout: float | None
    ) -> ModelMetadata:
        """The inputs and outputs of a model."""
        request = pb.ModelMetadataRequest(name=model, version=version)
        return messages.metadata_of(await self._call(self._stub.ModelMetadata, request, timeout))

    async def model_config(self, model: str, version: str, timeout: float | None) -> dict[str, Any]:
        """The configuration of a model."""
        request = pb.ModelConfigRequest(name=model, version=version)
        reply = await self._call(self._stub.ModelConfig, request, timeout)
        return messages.as_dict(reply.config)

    async def statistics(
        self, model: str, version: str, timeout: float | None
    ) -> list[ModelStatistics]:
        """The counters of a model version, a model, or all."""
        request = pb.ModelStatisticsRequest(name=model, version=version)
        reply = await self._call(self._stub.ModelStatistics, request, timeout)
        return [messages.statistics_of(each) for each in reply.model_stats]

    # -- repository ---------------------------------------------------------------------------

    async def index(self, ready_only: bool, timeout: float | None) -> list[ModelEntry]:
        """The models of the repository."""
        request = pb.RepositoryIndexRequest(ready=ready_only)
        reply = await self._call(self._stub.RepositoryIndex, request, timeout)
        return [ModelEntry(m.name, m.version, m.state, m.reason) for m in reply.models]

    async def load(
        self, model: str, parameters: Mapping[str, str | bytes], timeout: float | None
    ) -> None:
        """Load a model, or load it anew."""
        request = pb.RepositoryModelLoadRequest(model_name=model)
        for name, value in parameters.items():
            if isinstance(value, bytes):
                request.parameters[name].bytes_param = value
            else:
                request.parameters[name].string_param = value
        await self._call(self._stub.RepositoryModelLoad, request, timeout)

    async def unload(self, model: str, dependents: bool, timeout: float | None) -> None:
        """Unload a model, and those that it consists of."""
        request = pb.RepositoryModelUnloadRequest(model_name=model)
        request.parameters["unload_dependents"].bool_param = dependents
        await self._call(self._stub.RepositoryModelUnload, request, timeout)

    # -- aliases ------------------------------------------------------------------------------

    async def aliases(self, timeout: float | None) -> list[dict[str, Any]]:
        """Every alias, as it is defined."""
        reply = await self._call(self._aliases.AliasList, aliases.AliasListRequest(), timeout)
        return [messages.alias_of(each) for each in reply.aliases]

    async def alias(self, name: str, timeout: float | None) -> dict[str, Any]:
        """An alias, its traffic and its history."""
        request = aliases.AliasShowRequest(name=name)
        return messages.alias_of(await self._call(self._aliases.AliasShow, request, timeout))

    async def set_alias(
        self, name: str, definition: Mapping[str, Any], timeout: float | None
    ) -> dict[str, Any]:
        """Make an alias, or change it."""
        request = aliases.AliasSetRequest(name=name)
        messages.define(request.definition, definition)
        return messages.alias_of(await self._call(self._aliases.AliasSet, request, timeout))

    async def remove_alias(self, name: str, timeout: float | None) -> None:
        """Remove an alias."""
        request = aliases.AliasRemoveRequest(name=name)
        await self._call(self._aliases.AliasRemove, request, timeout)

    async def promote_alias(
        self, name: str, plan: Mapping[str, Any], timeout: float | None
    ) -> dict[str, Any]:
        """Give a target more and more."""
        request = aliases.AliasPromoteRequest(name=name)
        messages.define(request, plan)
        return messages.alias_of(await self._call(self._aliases.AliasPromote, request, timeout))

    async def roll_back_alias(self, name: str, timeout: float | None) -> dict[str, Any]:
        """Give the first target all."""
        request = aliases.AliasRollbackRequest(name=name)
        return messages.alias_of(await self._call(self._aliases.AliasRollback, request, timeout))

    async def register(self, name: str, key: str, size: int, timeout: float | None) -> None:
        """Make shared memory known to the server."""
        request = pb.SystemSharedMemoryRegisterRequest(name=name, key=key, byte_size=size)
        await self._call(self._stub.SystemSharedMemoryRegister, request, timeout)

    async def unregister(self, name: str, timeout: float | None) -> None:
        """Have the server forget shared memory."""
        request = pb.SystemSharedMemoryUnregisterRequest(name=name)
        await self._call(self._stub.SystemSharedMemoryUnregister, request, timeout)

    async def close(self) -> None:
        """Close the channel; calls that are open end."""
        await self._channel.close(None)

    # -- errors -------------------------------------------------------------------------------

    async def _call(
        self, method: Callable[..., Awaitable[Any]], request: Any, timeout: float | None
    ) -> Any:
        try:
            return await method(request, timeout=timeout, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from None

    def _failure(self, error: grpc.aio.AioRpcError) -> ClientError:
        return self._error(error.code(), error.details(), error.trailing_metadata())

    def _error(self, code: grpc.StatusCode, details: str | None, trailers: Any) -> ClientError:
        text, address = details or "", str(self.address)
        if code is grpc.StatusCode.UNAVAILABLE:
            if text.startswith(_NOT_CONNECTED):
                return no_server(address, _reason(text))
            if text.startswith(_LOST):
                return connection_lost(address, text)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return deadline_exceeded(address)
        number: int = code.value[0]
        return error_of(number, text or code.name, address, _retry_after(trailers))


def _retry_after(trailers: Any) -> float | None:
    """The server's `retry-after` in seconds; proxies may send a date, which is not read."""
    after = str(dict(trailers or ()).get("retry-after", ""))
    return float(after) if after.isdecimal() else None


def _reason(details: str) -> str:
    """The reason that gRPC gives, without the addresses that it tried."""
    if details.startswith(_UNRESOLVED):
        return "the name is not known"
    if "http1.x server" in details:
        return "it speaks HTTP, not gRPC: write http://HOST:PORT"
    if "Connection refused" in details:
        return "connection refused"
    return details.rpartition("last error: ")[2]


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    def read(path: str | Path | None) -> bytes | None:
        return None if path is None else Path(path).read_bytes()

    return grpc.ssl_channel_credentials(read(tls.ca_file), read(tls.key_file), read(tls.cert_file))
