"""Replies to inference requests that no task waits for."""

from __future__ import annotations

from gateway.serving import received_call
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.gateway.inference.codec import OutputEncoding
from penstock.gateway.inference.infer import InferAnswer
from penstock.shared_memory.registry import Regions


def test_client_that_has_left_before_takes_its_request_along() -> None:
    call, stream = received_call(b"{}"), ResponseStream(model_version="1")
    call.closed = True
    InferAnswer(call, InferenceRequest("m"), OutputEncoding(), Regions(), None).follow(stream)
    assert stream.ended
