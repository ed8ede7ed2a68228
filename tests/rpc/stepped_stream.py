"""A `ModelStreamInfer` call whose writer is stepped by the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import Reply, serialized
from penstock.rpc.stream_answer import StreamAnswer
from penstock.rpc.stream_writer import StreamWriter
from penstock.shared_memory.registry import Regions
from rpc.manual import Call, ManualServer, received

Received = int | str
"""The number of a response, the text of an error, or `end` for an empty final message."""


class CountingRegions(Regions):
    """No memory, only the ids of requests that released it."""

    def __init__(self) -> None:
        super().__init__()
        self.released: list[str] = []

    def release(self, request: InferenceRequest) -> None:
        self.released.append(request.id)


class CallingServer(ManualServer):
    """`on_taken` and `on_closed` are called, once, when that befalls the stream of a request."""

    def __init__(self) -> None:
        super().__init__()
        self.regions: CountingRegions = CountingRegions()
        self.on_taken: dict[str, Callable[[], object]] = {}
        self.on_closed: dict[str, Callable[[], object]] = {}

    def infer(self, request: InferenceRequest) -> ResponseStream:
        stream = super().infer(request)
        stream.connect(lambda: self._closed(request.id), lambda _: self._taken(request.id))
        return stream

    def _taken(self, id: str) -> None:
        self.on_taken.pop(id, lambda: None)()

    def _closed(self, id: str) -> None:
        self.closed.append(id)
        self.on_closed.pop(id, lambda: None)()


class Wire(Call):
    """A transport that writes at once, or leaves it to the writing task.

    `received` holds the messages of the client: the id of the request, and the value.
    """

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[str, Received]] = []

    def receive(self, message: Reply) -> None:
        self.received.append(_read(pb.ModelStreamInferResponse.FromString(serialized(message))))

    def write_nowait(self, message: Reply) -> bool:
        self.receive(message)
        return self.may_write.is_set()


def _read(response: pb.ModelStreamInferResponse) -> tuple[str, Received]:
    reply = response.infer_response
    if response.error_message:
        return reply.id, response.error_message
    if not reply.raw_output_contents:
        return reply.id, "end"
    return reply.id, int.from_bytes(reply.raw_output_contents[0], "little")


class SteppedStream:
    """A `ModelStreamInfer` call whose writer is stepped; `writing` is the answer being written."""

    def __init__(
        self,
        *,
        at_once: bool = False,
        deadline: float | None = None,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.server = CallingServer()
        self.wire = Wire()
        self.wire.writes_at_once = at_once
        self.wire.deadline = deadline
        self.wire.metadata = metadata
        self.answers = StreamWriter(self.server, self.wire, None)
        self.writing: StreamAnswer | None = None

    def ask(self, *requests: pb.ModelInferRequest) -> None:
        for request in requests:
            self.answers.accept(received(request))

    def answer(self, id: str, *responses: InferenceResponse) -> None:
        for response in responses:
            self.server.streams[id].send(response)

    def write_next(self) -> None:
        """Write the next message of the answer whose turn it is."""
        answer = self.answers.next_answer()
        message = self.answers.take_message(answer)
        if message is None or self.answers.write_nowait(message):
            self.answers.message_written(answer)
        else:
            self.wire.receive(message)
            self.writing = answer

    def finish_write(self) -> None:
        """Finish writing the message."""
        assert self.writing is not None
        answer, self.writing = self.writing, None
        self.answers.message_written(answer)

    def write_all(self) -> None:
        """Write all messages that are ready."""
        while self.answers.queued:
            self.write_next()
            if self.writing is not None:
                self.finish_write()

    def stall(self) -> None:
        """The transport has no room behind the next message."""
        self.wire.may_write.clear()

    def make_room(self) -> None:
        self.wire.may_write.set()
        self.answers.unblock()
