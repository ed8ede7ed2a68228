"""Requests of RPC tests, and checks of their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
import pytest

from penstock.core.delivery import deliver
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.server.server import InferenceServer
from rpc.manual import ManualServer
from rpc.serving import Client

ONE = np.ones(4, np.float32)


class AnsweringServer(ManualServer):
    """Gives every request the same responses, and ends its stream."""

    def __init__(self, *responses: InferenceResponse) -> None:
        super().__init__()
        self._responses = responses

    def infer(self, request: InferenceRequest) -> ResponseStream:
        stream = super().infer(request)
        for response in self._responses:
            stream.send(response)
        stream.end()
        return stream


class Generating(ManualServer):
    """Makes responses of 1000 bytes, as many as are taken, until the reader has `left`."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0
        self.left = asyncio.Event()

    def infer(self, request: InferenceRequest) -> ResponseStream:
        stream = ResponseStream(model_version="1")
        deliver(self._generate(), stream)
        return stream

    async def _generate(self) -> AsyncIterator[InferenceResponse]:
        try:
            while True:
                self.made += 1
                yield InferenceResponse({"OUT": Tensor.from_numpy(np.zeros(1000, np.uint8))})
        finally:
            self.left.set()


async def failure(call: Any) -> tuple[grpc.StatusCode, str | None]:
    """Code and text of the error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code(), failed.value.details()


async def states(client: Client) -> dict[tuple[str, str], str]:
    """The states of all versions that are known."""
    models = (await client.call("RepositoryIndex")).models
    return {(model.name, model.version): model.state for model in models if model.state}


async def read_to_the_end(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
        pass


def cancelled(server: InferenceServer) -> float:
    """Requests of the repeat model whose client left."""
    return next(gauge.value for gauge in server.gauges() if gauge.name == "cancelled")
