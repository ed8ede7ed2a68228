"""Penstock as an application of Ray Serve, behind Serve's own gRPC and HTTP proxies.

    serve.start(grpc_options=gRPCOptions(port=8001, grpc_servicer_functions=SERVICERS))
    serve.run(application(["--model-repository=/models"]))

A replica of Serve has a whole server beside it, on a port of the loopback, and hands it what the
proxies bring. Loads, unloads and aliases reach all replicas, by Serve's broadcast, and those that
come later; what else would concern one replica of several is refused by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import aiohttp
import grpc
import grpc.aio
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol import releases_pb2 as releases
from penstock.protocol.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from penstock.protocol.releases_pb2_grpc import ReleasesStub
from penstock.ray.changes import (
    Change,
    MadeChanges,
    NotAppliedError,
    NumberedChanges,
    replay,
)
from penstock.ray.server_process import CHANNEL_OPTIONS, GoneError, ServerProcess

SERVICERS = [
    "penstock.protocol.grpc_service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server",
    "penstock.protocol.releases_pb2_grpc.add_ReleasesServicer_to_server",
]
"""What Serve's `grpc_servicer_functions` takes."""

_STREAMS = ("ModelStreamInfer",)
_UNARY = tuple(
    method.name
    for service in (
        pb.DESCRIPTOR.services_by_name["GRPCInferenceService"],
        releases.DESCRIPTOR.services_by_name["Releases"],
    )
    for method in service.methods
    if not method.server_streaming
)
_CHANGES = {
    "RepositoryModelLoad": "load",
    "RepositoryModelUnload": "unload",
    "AliasSet": "alias",
    "AliasRemove": "remove_alias",
}
"""RPCs that reach all replicas, and the kinds of their changes."""
_ONE_REPLICA = {
    "AliasPromote": "promotes an alias",
    "AliasRollback": "rolls an alias back",
    "SystemSharedMemoryRegister": "shares memory of a client's machine",
    "SystemSharedMemoryUnregister": "shares memory of a client's machine",
    "CudaSharedMemoryRegister": "shares memory of a client's machine",
    "CudaSharedMemoryUnregister": "shares memory of a client's machine",
}
"""RPCs that are refused, and what each would do on one replica only."""
_SETTINGS = {"TraceSetting": "changes settings of traces", "LogSettings": "changes the log's"}
"""RPCs that are refused where they bring settings, and read them otherwise."""
_CHANGED = ("/load", "/unload", "/trace/setting", "/v2/logging")
_CHANGED_BELOW = ("/v2/repository/aliases/", "/v2/systemsharedmemory", "/v2/cudasharedmemory")
"""How paths end, or begin, of what is refused over HTTP where it does not only read."""
_EMPTY: Mapping[str, type[Any]] = {
    "RepositoryModelLoad": pb.RepositoryModelLoadResponse,
    "RepositoryModelUnload": pb.RepositoryModelUnloadResponse,
    "AliasRemove": releases.AliasRemoveResponse,
}
_OF_SERVE = ("application", "request_id", "multiplexed_model_id", "user-agent", "te")
_HOP_BY_HOP = ("connection", "host", "keep-alive", "transfer-encoding", "content-length")
_OF_AIOHTTP = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that it would add where the client has sent none."""


def _refusal(name: str, what: str) -> str:
    return (
        f"{name} {what} on one replica of several, which Ray Serve chooses: over gRPC, loads, "
        "unloads, AliasSet and AliasRemove reach all"
    )


def refused_call(name: str, request: Any) -> str:
    """Why an RPC is not handed on; empty if it is."""
    what = _ONE_REPLICA.get(name)
    if name in _SETTINGS and request.settings:
        what = _SETTINGS[name]
    return _refusal(name, what) if what else ""


def refused_path(method: str, path: str) -> str:
    """Why a request over HTTP is not handed on; empty if it is."""
    path = path.rstrip("/")
    changes = path.startswith(_CHANGED_BELOW) or path.endswith(_CHANGED)
    return _refusal(path, "changes something") if method != "GET" and changes else ""


class Replica:
    """A replica of Serve, with a server of its own. Its methods are those of the gRPC service."""

    async def __init__(  # type: ignore[misc]
        self, arguments: Sequence[str], python: str, kept: Any
    ) -> None:
        node = ray.get_runtime_context().get_node_id()
        self._server = ServerProcess(arguments, "127.0.0.1", node, python)
        address = await self._server.start()
        target = f"{address.host}:{address.grpc}"
        self._channel = grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._stub = GRPCInferenceServiceStub(self._channel)
        self._releases = ReleasesStub(self._channel)
        self._url = f"http://{address.host}:{address.http}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            skip_auto_headers=_OF_AIOHTTP,
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(),
            max_line_size=1 << 16,
        )
        context = serve.get_replica_context()
        self._replicas = serve.get_deployment_handle(context.deployment, context.app_name)
        self._kept = kept
        self._made = MadeChanges()
        self._catching_up = asyncio.create_task(self._catch_up())
        await self._catching_up

    async def _catch_up(self) -> None:
        """Make what was changed before this replica came, or did not reach it."""
        number, changes = await self._kept.since.remote(self._made.number)
        lacking = self._made.lacking(changes)

        async def make(change: Change) -> None:
            await self._server.apply(change)
            self._made.add(change, lacking[change])  # over a newer one that was broadcast meanwhile

        lacks = await replay([*lacking], make)
        for change, reason in lacks.items():
            print(f"this replica lacks: {change}: {reason}", flush=True)
        self._made.number = number

    async def apply(self, change: Change, mark: str) -> tuple[str, str] | None:
        """Make a change here; the status and text of the refusal, if it is one."""
        try:
            await self._server.apply(change)
        except NotAppliedError as error:
            return error.code, str(error)
        self._made.add(change, mark)
        return None

    async def _change_all(self, name: str, request: Any, context: Any) -> Any:
        """A change on all replicas; it is kept where one of them has made it."""
        change = Change(_CHANGES[name], request.SerializeToString())
        mark = uuid4().hex
        broadcast = self._replicas.broadcast("apply", change, mark)
        outcomes = await broadcast.results_async(return_exceptions=True)
        refused = [outcome for outcome in outcomes if outcome is not None]
        if len(refused) < len(outcomes):
            await self._kept.record.remote(change, mark)
        if refused:
            code, text = _told(refused[0])
            if len(outcomes) > 1:
                text = f"{len(refused)} of {len(outcomes)} replicas: {text}"
            raise _failure(context, grpc.StatusCode[code], text)
        if name == "AliasSet":
            return await self._releases.AliasShow(releases.AliasShowRequest(name=request.name))
        return _EMPTY[name]()

    async def check_health(self) -> None:
        """Serve replaces a replica whose server has ended, or that cannot learn of changes."""
        if self._catching_up.done():  # a load may take longer than Serve waits here
            last, self._catching_up = self._catching_up, asyncio.create_task(self._catch_up())
            last.result()
        if not await self._server.is_ready():
            raise GoneError("the server is not ready")

    async def forward(self, name: str, request: Any, context: Any) -> Any:
        """A call with one answer."""
        if reason := refused_call(name, request):
            raise _failure(context, grpc.StatusCode.UNIMPLEMENTED, reason)
        if name in _CHANGES:
            return await self._change_all(name, request, context)
        stub = self._releases if name.startswith("Alias") else self._stub
        call = getattr(stub, name)(request, metadata=_forwarded(context))
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            raise _failure(context, error.code(), error.details() or "") from None
        context.set_trailing_metadata(_plain(await call.trailing_metadata()))
        return answer

    async def forward_stream(self, name: str, requests: Any, context: Any) -> AsyncIterator[Any]:
        """A call with many requests and answers, which are taken as fast as the client reads."""
        call = getattr(self._stub, name)(requests, metadata=_forwarded(context))
        try:
            async for response in call:
                yield response
        except grpc.aio.AioRpcError as error:
            raise _failure(context, error.code(), error.details() or "") from None
        finally:
            call.cancel()

    async def __call__(self, request: Request) -> Response:
        """A request over HTTP; its answer comes in the pieces that the server sends."""
        path = request.url.path
        if reason := refused_path(request.method, path):
            return JSONResponse({"error": reason}, 501)
        query = f"?{request.url.query}" if request.url.query else ""
        answer = await self._session.request(
            request.method,
            f"{self._url}{path}{query}",
            data=await request.body(),
            headers=[(k, v) for k, v in request.headers.items() if k not in _HOP_BY_HOP],
            allow_redirects=False,
        )
        response = StreamingResponse(_pieces(answer), answer.status)
        # The length stays: a client of KServe's binary data needs it.
        response.raw_headers = [
            (name.lower(), value)
            for name, value in answer.raw_headers
            if name.lower() not in (b"connection", b"keep-alive", b"transfer-encoding")
        ]
        return response


async def _pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.content.iter_any():
            yield piece
    finally:
        answer.close()


def _told(refusal: tuple[str, str] | BaseException) -> tuple[str, str]:
    """The status and text for the client; one that did not answer may have ended."""
    if isinstance(refusal, BaseException):
        cause = getattr(refusal, "cause", None) or refusal  # Ray's copy has a traceback as text
        return "UNAVAILABLE", f"it did not answer: {cause}"
    return refusal


def _failure(context: Any, code: grpc.StatusCode, details: str) -> Exception:
    """An error whose code and text Serve's proxy tells the client."""
    context.set_code(code)
    context.set_details(details)
    return RuntimeError(details)


def _forwarded(context: Any) -> tuple[tuple[str, str], ...]:
    """The client's metadata without what is gRPC's own, or Serve's."""
    return tuple(
        (key, value)
        for key, value in context.invocation_metadata()
        if key not in _OF_SERVE and not key.startswith("grpc-")
    )


def _plain(metadata: Iterable[tuple[str, Any]] | None) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in metadata or ()]


def _unary_method(name: str) -> Callable[..., Awaitable[Any]]:
    async def method(self: Replica, request: Any, grpc_context: Any) -> Any:
        return await self.forward(name, request, grpc_context)

    return method


def _stream_method(name: str) -> Callable[..., AsyncIterator[Any]]:
    async def method(self: Replica, request: Any, grpc_context: Any) -> AsyncIterator[Any]:
        async for response in self.forward_stream(name, request, grpc_context):
            yield response

    return method


for _name in _UNARY:
    setattr(Replica, _name, _unary_method(_name))
for _name in _STREAMS:
    setattr(Replica, _name, _stream_method(_name))


def application(
    arguments: Sequence[str], python: str = "", **deployment_options: Any
) -> serve.Application:
    """The application for `serve.run`; `arguments` are those of `penstock serve`.

    `deployment_options` are Serve's: `num_replicas`, `autoscaling_config`, `ray_actor_options`,
    `max_ongoing_requests` (1,000 here, since the server has queues of its own) and so on.
    """
    options: Mapping[str, Any] = {
        "name": "penstock",
        "max_ongoing_requests": 1000,
        **deployment_options,
    }
    # A deployment of one: what was changed on the replicas, for those to come.
    kept = serve.deployment(NumberedChanges).options(
        name=f"{options['name']}-changes", ray_actor_options={"num_cpus": 0}
    )
    return serve.deployment(Replica).options(**options).bind(list(arguments), python, kept.bind())
