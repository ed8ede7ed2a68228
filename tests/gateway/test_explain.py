"""Requests whose clients ask for an explanation: what is recorded at the endpoint."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.serving import FakeServer, SilentServer, connected
from harness.raw_clients import hang_up
from penstock.core.errors import InternalError, RequestCancelledError
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.gateway.app import open_gateway
from penstock.settings import HttpSettings

_MODEL = "/v2/models/numbers"
_BODY = {"id": "7", "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}
_ASKED = {"penstock-explain": "1"}


class _Failing(FakeServer):
    def answer(self, request: InferenceRequest, stream: ResponseStream) -> None:
        stream.fail(InternalError("it broke"))


class _Refusing(FakeServer):
    def answer(self, request: InferenceRequest, stream: ResponseStream) -> None:
        raise InternalError("not now")


async def test_the_endpoint_records_what_it_was_asked_and_what_it_said() -> None:
    server = FakeServer()
    async with connected(server) as client:
        answer = await client.post(f"{_MODEL}/infer", json=_BODY, headers=_ASKED)
    told = json.loads(answer.headers["penstock-explain"])
    assert told["request_id"] == "7"
    timeline = server.requests[0].scope.timeline
    assert timeline is not None
    assert timeline.facts["http.request.method"] == "POST"
    assert timeline.facts["http.response.status_code"] == 200
    assert [mark for mark, _ in timeline.marks][:2] == ["HTTP_RECV_START", "HTTP_RECV_END"]
    assert timeline.end


@pytest.mark.parametrize(
    ("server", "text"),
    [(_Failing(), "it broke"), (_Refusing(), "not now")],
    ids=["fails", "refuses"],
)
@pytest.mark.parametrize("call", ["infer", "generate"])
async def test_an_error_is_part_of_the_record(server: FakeServer, text: str, call: str) -> None:
    body = _BODY if call == "infer" else {"IN": 1}
    async with connected(server) as client:
        answer = await client.post(f"{_MODEL}/{call}", json=body, headers=_ASKED)
    assert answer.status_code >= 400
    timeline = server.requests[-1].scope.timeline
    assert timeline is not None
    assert timeline.error is not None
    assert timeline.error.message == text


async def test_events_end_with_the_explanation() -> None:
    async with connected(FakeServer()) as client:
        answer = await client.post(f"{_MODEL}/generate_stream", json={"IN": 1}, headers=_ASKED)
    assert "event: penstock-explain\ndata: {" in answer.text


@pytest.mark.parametrize("call", ["infer", "generate", "generate_stream"])
async def test_a_client_that_leaves_ends_the_record(call: str) -> None:
    server = SilentServer()
    body = json.dumps(_BODY if call == "infer" else {"IN": 1}).encode()
    settings = HttpSettings(address="127.0.0.1", port=0)
    async with open_gateway(server, settings, ExitDeadline(1)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST {_MODEL}/{call} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"penstock-explain: 1\r\n\r\n" + body)
        request, stream = await server.asked.get()
        await hang_up(writer)
        while not stream.ended:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
        assert request.scope.timeline is not None
        while not request.scope.timeline.end:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
    assert isinstance(request.scope.timeline.error, RequestCancelledError)
