"""A conversation whose client and models are the test."""

from __future__ import annotations

import asyncio

from penstock.core.request import InferenceResponse
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.infer_stream import InferStream
from rpc.manual import PATIENCE, Call, ManualServer, turns


class Talk:
    """A conversation that is going on."""

    def __init__(self, *, at_once: bool, deadline: float | None = None, **metadata: str) -> None:
        self.server = ManualServer()
        self.call = Call()
        self.call.deadline = deadline
        self.call.writes_at_once = at_once
        self.call.metadata = metadata
        conversation = InferStream(self.server, self.call)
        self.task = asyncio.ensure_future(conversation.run(self.call.requests()))

    @property
    def responses(self) -> list[pb.ModelStreamInferResponse]:
        return self.call.responses

    async def say(self, *requests: pb.ModelInferRequest) -> None:
        """Send requests, and let the server see them."""
        self.call.send(*requests)
        await turns()

    async def answer(self, id: str, *responses: InferenceResponse) -> None:
        """Have a request answered, and let the responses be written."""
        for response in responses:
            self.server.streams[id].send(response)
        await turns()

    async def end(self) -> None:
        """No more requests; wait for the end of the call."""
        self.call.half_close()
        await asyncio.wait_for(self.task, PATIENCE)
