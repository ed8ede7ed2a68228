"""A server with models on a port, and a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx

from penstock.core.body_quota import BodyQuota
from penstock.core.config import ModelConfig, ModelInput, ModelOutput
from penstock.core.errors import InferenceError
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import DataType
from penstock.gateway.app import open_gateway
from penstock.gateway.connections.http_call import CallHost, HttpCall
from penstock.http1.requests import read_head
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.models.serving.answers import ModelMetadata, ModelStatistics, TensorMetadata
from penstock.models.serving.served_model import ServedModel
from penstock.server.answers import ModelIndexEntry, ServerMetadata
from penstock.server.control_policy import ControlPolicy
from penstock.server.server import InferenceServer
from penstock.settings import HttpSettings
from penstock.shared_memory.message_pools import MessagePools
from penstock.system.reaper import Reaper

LOCAL = HttpSettings(address="127.0.0.1", port=0)


@asynccontextmanager
async def serving(
    repository: Path, models: Iterable[str], *, lenient: bool = False, **options: Any
) -> AsyncIterator[InferenceServer]:
    """A server with these models of a repository; when `lenient`, with those that load."""
    files, reaper = ModelRepository([repository]), Reaper()
    lifecycle = ModelLifecycle(files, VersionBuilder(lambda _: {}, reaper))
    server = InferenceServer(ServerMetadata("triton", "2.51.0"), files, lifecycle, **options)
    try:
        failures = await server.start(models)
        for failure in () if lenient else failures.values():
            raise failure
        yield server
    finally:
        await server.stop(ExitDeadline(5))
        reaper.close()


@asynccontextmanager
async def connected(
    server: InferenceServer, settings: HttpSettings = LOCAL
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server's HTTP endpoint that asks for no compression."""
    async with (
        open_gateway(server, settings, ExitDeadline(2)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as client,
    ):
        del client.headers["accept-encoding"]
        yield client


class FakeServer(InferenceServer):
    """A facade that serves `numbers`, FP32 of any length, the way its fields say."""

    messages = MessagePools()

    def __init__(self) -> None:
        self.config = ModelConfig(
            name="numbers",
            input=(ModelInput(name="IN", data_type=DataType.FP32, dims=(-1,)),),
            output=(ModelOutput(name="OUT", data_type=DataType.FP32, dims=(-1,)),),
        )
        self.requests: list[InferenceRequest] = []
        self.loaded: list[tuple[str, Mapping[str, str | bytes]]] = []
        self.unloaded: list[tuple[str, bool]] = []
        self.healthy = True
        self.entries: tuple[ModelIndexEntry, ...] = ()
        self.counted: tuple[ModelStatistics, ...] = ()

    def answer(self, request: InferenceRequest, stream: ResponseStream) -> None:
        """What happens to a request; here its inputs come back as outputs."""
        stream.send(InferenceResponse({"OUT": request.inputs["IN"]}, final=True))

    decoupled = False

    def find(self, name: str, version: str) -> ServedModel:
        return self  # the only model that there is

    def infer(self, request: InferenceRequest) -> ResponseStream:
        stream = ResponseStream(model_version="1")
        self.requests.append(request)
        self.answer(request, stream)
        return stream

    def exchange(self, request: InferenceRequest) -> ResponseStream:
        return self.infer(request)

    async def live(self) -> bool:
        return self.healthy

    async def ready(self) -> bool:
        return self.healthy

    async def model_ready(self, name: str, version: str) -> bool:
        return self.healthy

    async def metadata(self) -> ServerMetadata:
        return ServerMetadata("fake", "1.2")

    async def model_metadata(self, name: str, version: str) -> ModelMetadata:
        tensors = tuple(TensorMetadata(t.name, "FP32", t.dims) for t in self.config.input)
        return ModelMetadata(name, ("1",), "fake", tensors, ())

    async def model_config(self, name: str, version: str) -> ModelConfig:
        return self.config

    async def statistics(self, name: str, version: str) -> tuple[ModelStatistics, ...]:
        return self.counted

    async def index(self, ready_only: bool = False) -> tuple[ModelIndexEntry, ...]:
        return tuple(e for e in self.entries if not ready_only or e.state == "READY")

    control_policy = ControlPolicy(upload=True)
    trusted = False

    def check_model_control(self) -> None:
        """Models may be loaded and unloaded."""

    async def load(
        self, name: str, parameters: Mapping[str, str | bytes], *, trusted: bool = False
    ) -> None:
        self.loaded.append((name, parameters))
        self.trusted = trusted

    async def unload(
        self, name: str, unload_dependents: bool = False, versions: Set[int] = frozenset()
    ) -> None:
        self.unloaded.append((name, unload_dependents))


class SilentServer(FakeServer):
    """Takes requests and never answers by itself; `asked` gets what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: asyncio.Queue[tuple[InferenceRequest, ResponseStream]] = asyncio.Queue()

    def answer(self, request: InferenceRequest, stream: ResponseStream) -> None:
        self.asked.put_nowait((request, stream))


class AnsweringServer(FakeServer):
    """Sends responses and then ends, or fails."""

    def __init__(self, *responses: InferenceResponse, error: InferenceError | None = None) -> None:
        super().__init__()
        self._responses = responses
        self._failure = error

    def answer(self, request: InferenceRequest, stream: ResponseStream) -> None:
        for response in self._responses:
            stream.send(response)
        stream.end() if self._failure is None else stream.fail(self._failure)


def received_call(
    body: bytes, fields: Sequence[tuple[bytes, bytes]] = (), *, declared: bool = True
) -> HttpCall:
    """A call whose whole body has arrived, on a connection that nobody reads."""
    framing = (b"transfer-encoding", b"chunked")
    if declared:
        framing = (b"content-length", b"%d" % len(body))
    head = read_head(b"POST", b"/", "1.1", [*fields, framing], keep_alive=True)
    host = SimpleNamespace(bodies=BodyQuota(1 << 30), access=None)
    call = HttpCall(cast(CallHost, host), head, lambda _: None)
    call.body.feed(body)
    call.body.complete = True
    return call
