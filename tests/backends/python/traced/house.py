"""A server whose finished traces the test sees; its models run in real processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.core.exit_deadline import ExitDeadline
from penstock.core.timeline import Timeline, Trace
from penstock.metrics.custom import CustomMetrics
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.protocol import grpc_service_pb2 as pb
from penstock.server.answers import ServerMetadata
from penstock.server.model_services import LocalServices
from penstock.server.server import InferenceServer
from penstock.settings import GrpcSettings, TraceSettings
from penstock.system.reaper import Reaper
from penstock.tracing.settings import TraceControl
from penstock.tracing.tracer import Tracer
from rpc.serving import Client, connected

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACED = ("traceparent", CALLER)

_SETTINGS = TraceSettings(mode="opentelemetry", levels=frozenset({"TIMESTAMPS"}), rate=0)
"""Requests that come with a trace context are traced, and no others; so a test chooses."""

CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] } ]
"""


class Sink:
    """Keeps finished traces."""

    def __init__(self) -> None:
        self.traces: asyncio.Queue[Trace] = asyncio.Queue()

    def submit(self, trace: Trace) -> None:
        self.traces.put_nowait(trace)

    async def trace(self) -> Trace:
        """The next trace that ends."""
        return await asyncio.wait_for(self.traces.get(), 60)


class House:
    """A server, its client, and its traces."""

    def __init__(self, client: Client, sink: Sink, server: InferenceServer) -> None:
        self.client = client
        self.server = server
        self._sink = sink

    async def ask(self, model: str, text: str = "", *metadata: tuple[str, str]) -> Any:
        """The JSON that the model answers with."""
        answer = await self.client.call("ModelInfer", message(model, text), metadata=metadata)
        return told(answer)

    async def traced(self, model: str, text: str = "", *metadata: tuple[str, str]) -> Any:
        """As `ask`, for a request that is traced: the answer and its trace."""
        answer = await self.ask(model, text, TRACED, *metadata)
        return answer, await self.trace()

    async def trace(self) -> Trace:
        """The next trace that ends."""
        return await self._sink.trace()


def message(model: str, text: str = "", *, batched: bool = False) -> pb.ModelInferRequest:
    """A request with one text, which is its id too; `batched` for a model that batches."""
    request = pb.ModelInferRequest(model_name=model, id=text)
    request.inputs.add(name="IN", datatype="BYTES", shape=[1, 1] if batched else [1])
    data = text.encode()
    request.raw_input_contents.append(len(data).to_bytes(4, "little") + data)
    return request


def told(answer: pb.ModelInferResponse) -> Any:
    """The JSON in a response."""
    return json.loads(answer.raw_output_contents[0][4:])


def timeline_of(trace: Trace, model: str) -> Timeline:
    """The timeline of the trace's only request to a model."""
    (found,) = [one for one in trace.timelines if one.model == model]
    return found


def own_marks(timeline: Timeline) -> list[str]:
    """Names of marks that the server does not make."""
    usual = "QUEUE", "REQUEST", "COMPUTE", "FIRST_RESPONSE", "LAST_RESPONSE"
    return [name for name, _ in timeline.marks if not name.startswith(usual)]


def write(root: Path, name: str, code: str, config: str) -> None:
    """A model of this code and configuration."""
    version = root / name / "1"
    version.mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(config)
    (version / "model.py").write_text(code)


@asynccontextmanager
async def opened(
    root: Path,
    models: Mapping[str, tuple[str, str]],
    tracer: Tracer | None = None,
    config: str = CONFIG,
) -> AsyncIterator[House]:
    """A server of these models: code, and what is added to the configuration, by name.

    In the mode `opentelemetry`, unless the test gives another `tracer`.
    """
    for name, (code, more) in models.items():
        write(root, name, code, config + more)
    files, reaper, sink = ModelRepository([root]), Reaper(), Sink()
    builder = VersionBuilder(lambda _: {}, reaper)
    lifecycle = ModelLifecycle(files, builder)
    server = InferenceServer(
        ServerMetadata("triton", "1.2.3"),
        files,
        lifecycle,
        tracer=tracer or Tracer(TraceControl(_SETTINGS), [sink], propagates=True),
    )
    builder.factory.services = LocalServices(server, lifecycle, CustomMetrics())
    try:
        assert await server.start(files.names()) == {}
        settings = GrpcSettings(address="127.0.0.1", port=0, transport="native")
        async with connected(server, settings) as client:
            yield House(client, sink, server)
    finally:
        await server.stop(ExitDeadline(5))
        reaper.close()
