"""The header with a client's deadline."""

from __future__ import annotations

import asyncio

import pytest

from gateway.serving import FakeServer, connected
from penstock.core.errors import DeadlineExceededError
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream

_INFER = "/v2/models/numbers/infer"
_BODY = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}


class _PunctualServer(FakeServer):
    """Does nothing but keep to deadlines, as models do."""

    def answer(self, request: InferenceRequest, stream: ResponseStream) -> None:
        assert request.scope.deadline is not None
        late = DeadlineExceededError("Deadline Exceeded")
        asyncio.get_running_loop().call_at(request.scope.deadline, stream.abort, late)


async def test_request_that_takes_longer_than_its_client_waits_is_cancelled() -> None:
    async with connected(_PunctualServer()) as client:
        answer = await client.post(_INFER, json=_BODY, headers={"request-timeout": "0.05"})
    assert answer.status_code == 504
    assert answer.json() == {"error": "Deadline Exceeded"}


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf", ""])
async def test_senseless_timeout_is_refused(text: str) -> None:
    async with connected(FakeServer()) as client:
        answer = await client.post(_INFER, json=_BODY, headers={"request-timeout": text})
    assert answer.status_code == 400
    assert "header 'request-timeout' must be a number of seconds" in answer.json()["error"]
