"""A model process that makes requests of the server, and services that answer it, as tests say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.core.call_chain import CallingInstance
from penstock.core.errors import InvalidRequestError, NotFoundError, UnsupportedError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.hosting.link.arena import create
from penstock.hosting.link.memory import SharedMemory
from penstock.hosting.link.messages import Kind, pack_request, unpack_response
from penstock.hosting.parent.services import ServedCalls
from penstock.inflight.inference import Inference

Said = tuple[Kind, Any]


class FakeServices:
    """Gives every request a stream, by the request's id; the model `many` is decoupled."""

    propagates = False

    def __init__(self) -> None:
        self.streams: dict[str, ResponseStream] = {}
        self.requests: list[InferenceRequest] = []
        self.closed: list[str] = []
        self.owners: list[str] = []
        self.over: list[str] = []
        self.gate = asyncio.Event()

    def infer(self, request: InferenceRequest) -> ResponseStream:
        if request.model_name == "nope":
            raise InvalidRequestError("unexpected shape")
        stream = ResponseStream()
        stream.connect(lambda: self.closed.append(request.id))
        self.requests.append(request)
        self.streams[request.id] = stream
        return stream

    def decoupled(self, name: str, version: str) -> bool:
        if name == "unknown":
            raise NotFoundError("Request for unknown model: 'unknown' is not found")
        return name == "many"

    async def control(self, verb: str, arguments: Sequence[Any]) -> Any:
        if verb == "wait":
            await self.gate.wait()
        if verb == "fail":
            raise UnsupportedError("not that")
        return [verb, *arguments]

    def metric(self, owner: str, operation: str, arguments: Sequence[Any]) -> Any:
        if operation == "fail":
            raise ZeroDivisionError("no metric")
        self.owners.append(owner)
        return [operation, *arguments]

    def ended(self, owner: str) -> None:
        self.over.append(owner)


class CallingProcess:
    """The model process's side of the link, driven by a test; `said` is what it was sent."""

    def __init__(self, pid: int = 1, *, decoupled: bool = False) -> None:
        self.batch: list[Inference] = []
        self.services = FakeServices()
        self.said: list[Said] = []
        memory = SharedMemory(out=create(1 << 24), into=create(1 << 24))
        self._exchange = memory.codec
        memory.open(lambda _: None)
        self.calls = ServedCalls(
            self.services,
            CallingInstance("m_0_0"),
            pid,
            memory,
            self._hear,
            lambda: self.batch,
            decoupled=decoupled,
        )

    def call(
        self, id: str, model: str = "once", *, decoupled: bool = False, holds: bool = False
    ) -> None:
        """Make a request; its number is the length of its id."""
        packed, payload = pack_request(len(id), InferenceRequest(model, id=id))
        self.tell(Kind.CALL, (decoupled, holds, packed), b"".join(payload))

    def tell(self, kind: Kind, header: Any, payload: bytes = b"") -> None:
        self.calls.handlers[kind](header, memoryview(payload))

    def heard(self, kind: Kind) -> list[Any]:
        """The headers of the messages of one kind."""
        return [header for said, header in self.said if said is kind]

    @property
    def numbers(self) -> list[int]:
        """The parameters `n` of the responses that came."""
        return [response.parameters["n"] for _, response in self.heard(Kind.CALLED)]

    def _hear(self, kind: Kind, header: Any, payload: Sequence[Any] = ()) -> None:
        if kind is Kind.CALLED:
            number, packed = header
            response = unpack_response(packed, memoryview(b"".join(payload)), self._exchange)
            header = number, response
        self.said.append((kind, header))


def response(number: int, *, final: bool = False) -> InferenceResponse:
    return InferenceResponse(parameters={"n": number}, final=final)


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)
