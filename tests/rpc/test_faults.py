"""A fault of the server is a line of the log that names the request, over every protocol."""

from __future__ import annotations

from itertools import count

import grpc
import httpx
import numpy as np
import pytest

from gateway.serving import FakeServer
from gateway.serving import connected as over_http
from penstock.core.log.log_fields import fields_of
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.settings import GrpcSettings
from rpc.serving import connected, infer_request

Caplog = pytest.LogCaptureFixture
NUMBERS = np.ones(2, np.float32)


_SERVERS = count()


class Broken(FakeServer):
    """Fails at every request, by a mistake of its own kind, of which ten are logged."""

    def __init__(self) -> None:
        super().__init__()
        self.mistake = type(f"Mistake{next(_SERVERS)}", (KeyError,), {})

    def infer(self, request: InferenceRequest) -> ResponseStream:
        raise self.mistake("a mistake")


async def test_over_grpc(local: GrpcSettings, caplog: Caplog) -> None:
    server = Broken()
    async with connected(server, local) as client:
        for _ in range(12):
            with pytest.raises(grpc.aio.AioRpcError, match="internal error; see the server's log"):
                await client.call("ModelInfer", infer_request("numbers", "g-1", IN=NUMBERS))
    failed = [one for one in caplog.records if one.getMessage() == "ModelInfer failed"]
    assert [fields_of(one) for one in failed] == [{"model": "numbers", "request_id": "g-1"}] * 10
    assert f"{server.mistake.__name__}: 'a mistake'" in caplog.text


async def test_over_http(caplog: Caplog) -> None:
    tensor = {"name": "IN", "datatype": "FP32", "shape": [1], "data": [1.5]}
    async with over_http(Broken()) as client:
        for _ in range(12):
            answer: httpx.Response = await client.post(
                "/v2/models/numbers/infer", json={"id": "h-1", "inputs": [tensor]}
            )
            assert answer.status_code == 500
    text = "POST /v2/models/numbers/infer failed"
    failed = [one for one in caplog.records if one.getMessage() == text]
    assert [fields_of(one) for one in failed] == [{"model": "numbers", "request_id": "h-1"}] * 10
