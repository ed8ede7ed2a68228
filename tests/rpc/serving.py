"""A facade on a port, and a client of it that speaks with our own messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from harness.repeat_model import REPEAT
from penstock.core.access import AuditSink
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.tensor import Array, DataType, Tensor
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.models.residency.residency import ModelResidency
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol import health_pb2
from penstock.rpc.server import open_grpc
from penstock.server.answers import ServerMetadata
from penstock.server.server import InferenceServer
from penstock.settings import GrpcSettings
from penstock.system.reaper import Reaper

SERVICE = "inference.GRPCInferenceService"
HEALTH = "grpc.health.v1.Health"

_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Client:
    """One channel to a server."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    async def call(self, name: str, request: Any = None, **options: Any) -> Any:
        """A unary method of the inference service; without a request, an empty one."""
        return await self.method(name)(request or getattr(pb, f"{name}Request")(), **options)

    def method(self, name: str) -> Callable[..., Any]:
        """A unary method, to be called and cancelled."""
        request, response = getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response")
        multi: Callable[..., Any] = self.channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        return multi

    def stream(self, requests: Any = None, **options: Any) -> Any:
        """`ModelStreamInfer`; without an iterator of requests, `write` is how to send them."""
        return self.channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )(requests, **options)

    async def conversation(
        self, requests: Iterable[pb.ModelInferRequest], **options: Any
    ) -> list[pb.ModelStreamInferResponse]:
        """Every response to these requests on a stream of their own."""
        return [response async for response in self.stream(iter(requests), **options)]

    async def check(self, service: str = "") -> Any:
        """The standard health check."""
        return await self.channel.unary_unary(
            f"/{HEALTH}/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )(health_pb2.HealthCheckRequest(service=service))

    async def raw(self, path: str, data: bytes = b"") -> bytes:
        """The bytes that any method answers to bytes."""
        answer: bytes = await self.channel.unary_unary(path, bytes, bytes)(data)
        return answer


@asynccontextmanager
async def open_models(
    repository: Path,
    *,
    explicit: bool = False,
    demand: bool = False,
    audit: AuditSink | None = None,
    **options: Any,
) -> AsyncIterator[InferenceServer]:
    """A server over a model repository; with explicit control nothing is loaded yet.

    With `demand`, calls load models.
    """
    files, reaper = ModelRepository([repository]), Reaper()
    lifecycle = ModelLifecycle(files, VersionBuilder(lambda _: {}, reaper))
    identity = ServerMetadata("triton", "1.2.3")
    server = InferenceServer(identity, files, lifecycle, explicit_control=explicit, **options)
    server.audit = audit
    if demand:
        server.residency = ModelResidency(files, lifecycle, timeout=60)
    try:
        failures = await server.start(() if explicit else files.names())
        for failure in failures.values():
            raise failure
        yield server
    finally:
        await server.stop(ExitDeadline(5))
        reaper.close()


@asynccontextmanager
async def connected(
    server: InferenceServer, settings: GrpcSettings, grace: float = 2.0
) -> AsyncIterator[Client]:
    """A client of a server's gRPC endpoint."""
    async with (
        open_grpc(server, settings, ExitDeadline(grace)) as port,
        channel_to(port) as channel,
    ):
        yield Client(channel)


def channel_to(port: int) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_UNLIMITED)


def write_models(root: Path) -> Path:
    """`identity` (two versions), `batched`, `isolated` (in a process of its own) and `repeat`."""
    identity = (
        'backend: "identity" input [ {tensor} name: "IN" } ] output [ {tensor} name: "OUT" } ]'
    )
    numbers = identity.replace("{tensor}", "{ data_type: TYPE_FP32 dims: [ -1 ]")
    _write(root / "identity", f"{numbers} version_policy {{ all {{ }} }}", versions=(1, 3))
    _write(root / "batched", f"max_batch_size: 8 {numbers} dynamic_batching {{ }}")
    process = 'parameters { key: "penstock.host" value: { string_value: "process" } }'
    _write(root / "isolated", f"{numbers} {process}")
    _write(root / "repeat", REPEAT)
    return root


def _write(model: Path, config: str, versions: Iterable[int] = (1,)) -> None:
    for version in versions:
        (model / str(version)).mkdir(parents=True)
    (model / "config.pbtxt").write_text(config)


def infer_request(
    model: str, /, id: str = "", version: str = "", **inputs: Array
) -> pb.ModelInferRequest:
    """A request with raw contents."""
    message = pb.ModelInferRequest(model_name=model, model_version=version, id=id)
    for name, array in inputs.items():
        tensor = Tensor.from_numpy(array)
        message.inputs.add(name=name, datatype=tensor.datatype.value, shape=tensor.shape)
        message.raw_input_contents.append(bytes(tensor.buffer))
    return message


def repeat_request(
    model: str, values: Iterable[int], delay: int = 0, id: str = "", empty_final: bool = False
) -> pb.ModelInferRequest:
    """A request for one response per value, `delay` milliseconds apart."""
    numbers = np.array(list(values), np.int32)
    message = infer_request(
        model,
        id,
        IN=numbers,
        DELAY=np.full(numbers.shape, delay, np.uint32),
        WAIT=np.zeros(1, np.uint32),
    )
    if empty_final:
        message.parameters["triton_enable_empty_final_response"].bool_param = True
    return message


def output(response: pb.ModelInferResponse, name: str) -> Array:
    """One output of a response."""
    names = [tensor.name for tensor in response.outputs]
    at = names.index(name)
    tensor = response.outputs[at]
    data = response.raw_output_contents[at]
    return Tensor(DataType(tensor.datatype), tensor.shape, data).numpy()
