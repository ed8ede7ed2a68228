"""Metadata that becomes parameters of requests."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.settings import Feature, GrpcSettings, Restriction
from rpc.manual import ManualServer, ask, number
from rpc.serving import connected

pytestmark = pytest.mark.contract("GT-17")

METADATA = [("x-one", "1"), ("x-data-bin", b"\0"), ("y-x-two", "2")]


@pytest.fixture
def settings(local: GrpcSettings) -> GrpcSettings:
    return replace(local, header_forward_pattern="^x-|priority")


class AnsweringServer(ManualServer):
    def infer(self, request: InferenceRequest) -> ResponseStream:
        stream = super().infer(request)
        stream.send(number(1, final=True))
        return stream


async def test_text_metadata_goes_to_the_model(settings: GrpcSettings) -> None:
    server = AnsweringServer()
    request = ask("once", "a")
    request.parameters["own"].int64_param = 5
    async with connected(server, settings) as client:
        await client.call("ModelInfer", request, metadata=METADATA)
        await client.conversation([request], metadata=METADATA)
    expected = {"own": 5, "x-one": "1"}
    assert [dict(request.parameters) for request in server.requests] == [expected, expected]


async def test_the_secret_of_a_restriction_reaches_no_model(settings: GrpcSettings) -> None:
    secret = Restriction(frozenset({Feature.INFERENCE}), "Key", "s3cret")
    settings = replace(settings, header_forward_pattern=".", restrictions=(secret,))
    metadata = [("triton-grpc-protocol-key", "s3cret"), ("x-one", "1")]
    server = AnsweringServer()
    async with connected(server, settings) as client:
        await client.call("ModelInfer", ask("once", "a"), metadata=metadata)
    (request,) = server.requests
    assert "s3cret" not in request.parameters.values()
    assert request.parameters["x-one"] == "1"


@pytest.mark.contract("SEC-13")
async def test_reserved_metadata_fails_the_request(settings: GrpcSettings) -> None:
    metadata = [("priority", "1")]
    text = "Header 'priority' is reserved for Triton usage and cannot be forwarded."
    async with connected(AnsweringServer(), settings) as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.call("ModelInfer", ask("once", "a"), metadata=metadata)
        (response,) = await client.conversation([ask("once", "a")], metadata=metadata)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (refused.value.details(), response.error_message) == (text, text)
