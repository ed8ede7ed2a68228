"""A facade whose answers the test gives by hand, and a call that the test is the client of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.access.policy import Permit
from penstock.core.config import ModelConfig
from penstock.core.errors import ExhaustedError, InvalidRequestError, NotFoundError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.models.serving.served_model import ServedModel
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import Metadata, Reply, serialized
from penstock.rpc.messages import InferMessage, parse_infer
from penstock.server.server import InferenceServer
from penstock.shared_memory.message_pools import MessagePools

PATIENCE = 20.0
DEADLINES = (0.2, 2.0, 20.0)
"""Seconds for a call; one after the other, until they were enough to get to its method."""


@dataclass(frozen=True)
class _ManualModel:
    config: ModelConfig
    decoupled: bool
    infer: Callable[[InferenceRequest], ResponseStream]

    def exchange(self, request: InferenceRequest) -> ResponseStream:
        return self.infer(request)


class ManualServer(InferenceServer):
    """Models `once*` answer once, models `many*` are decoupled; `strict` refuses every request,
    `full` every one for want of room.

    `streams` are the requests' streams by their ids, `requests` the requests in order.
    """

    messages = MessagePools()

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self.requests: list[InferenceRequest] = []
        self.streams: dict[str, ResponseStream] = {}
        self.closed: list[str] = []

    def model_names(self) -> Sequence[str]:
        return sorted({request.model_name for request in self.requests})

    async def wait_stopping(self) -> None:
        await self.stopped.wait()

    def find(self, name: str, version: str) -> ServedModel:
        if not name.startswith(("once", "many", "strict", "full")):
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        return _ManualModel(ModelConfig(name=name), name.startswith("many"), self.infer)

    def infer(self, request: InferenceRequest) -> ResponseStream:
        if request.model_name == "strict":
            raise InvalidRequestError("not like this")
        if request.model_name == "full":
            raise ExhaustedError("no room", retry_after=7)
        stream = ResponseStream(model_version="1")
        stream.connect(lambda: self.closed.append(request.id))
        self.requests.append(request)
        self.streams[request.id] = stream
        return stream


def received(message: pb.ModelInferRequest) -> InferMessage:
    """A request as it comes from a client."""
    return parse_infer(message.SerializeToString())


class Call:
    """The client's side of one streaming call, and the `RpcContext` that the server sees."""

    permit: Permit | None = None
    certificate: Sequence[str] = ()

    def __init__(self) -> None:
        self.metadata: Mapping[str, str] = {}
        self.metadata_fields: Metadata = ()
        self.deadline: float | None = None
        self.writes_at_once = False
        self.authority = ""
        self.opened = 0
        self.trace_id = 0
        self.peer = "ipv4:127.0.0.1:1"
        self.request_compressed = False
        self.responses: list[pb.ModelStreamInferResponse] = []
        self.trailing: list[tuple[str, str | bytes]] = []
        self.may_write = asyncio.Event()
        self.may_write.set()
        self._requests: asyncio.Queue[pb.ModelInferRequest | None] = asyncio.Queue()

    def send(self, *requests: pb.ModelInferRequest) -> None:
        for request in requests:
            self._requests.put_nowait(request)

    def half_close(self) -> None:
        """No more requests."""
        self._requests.put_nowait(None)

    async def requests(self) -> AsyncIterator[InferMessage]:
        while (request := await self._requests.get()) is not None:
            yield received(request)

    async def write(self, message: Reply) -> None:
        await self.may_write.wait()
        self._hear(message)

    def write_nowait(self, message: Reply) -> bool:
        self._hear(message)
        return self.may_write.is_set()

    def _hear(self, message: Reply) -> None:
        self.responses.append(pb.ModelStreamInferResponse.FromString(serialized(message)))

    async def writable(self) -> None:
        await self.may_write.wait()

    def set_initial_metadata(self, metadata: Metadata) -> None:
        """Not looked at."""

    async def begin(self) -> None:
        """Not looked at."""

    def add_trailing_metadata(self, metadata: Metadata) -> None:
        self.trailing += metadata

    def compress_responses(self, wanted: bool) -> None:
        """Not looked at."""


def ask(model: str, id: str, *, empty_final: bool = False) -> pb.ModelInferRequest:
    """A request without inputs."""
    request = pb.ModelInferRequest(model_name=model, id=id)
    if empty_final:
        request.parameters["triton_enable_empty_final_response"].bool_param = True
    return request


def number(value: int, *, final: bool = False) -> InferenceResponse:
    """A response with one number."""
    return InferenceResponse({"OUT": Tensor.from_numpy(np.array([value], np.int32))}, final=final)


def numbers(responses: Iterable[pb.ModelStreamInferResponse]) -> list[tuple[str, int]]:
    """Whose responses these are, and their numbers."""
    replies = [response.infer_response for response in responses]
    return [(reply.id, int.from_bytes(reply.raw_output_contents[0], "little")) for reply in replies]


def finals(responses: Iterable[pb.ModelStreamInferResponse]) -> list[bool]:
    """Their final flags."""
    key = "triton_final_response"
    return [response.infer_response.parameters[key].bool_param for response in responses]


async def turns(count: int = 10) -> None:
    """Let everything run that can run without waiting for anything."""
    for _ in range(count):
        await asyncio.sleep(0)
