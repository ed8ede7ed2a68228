"""Calls with the stock stubs, and what their trailing metadata says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

EXPLAIN = (("penstock-explain", "1"),)
Metadata = Sequence[tuple[str, str]]


def request(model: str, *values: float, id: str = "", rows: int = 0) -> Any:
    """A request with one input of these values; with `rows`, of a model that batches."""
    message = service_pb2.ModelInferRequest(model_name=model, id=id)
    shape = [rows, len(values)] if rows else [len(values)]
    message.inputs.add(name="IN", datatype="FP32", shape=shape)
    message.raw_input_contents.append(np.array(values, np.float32).tobytes())
    return message


def stub(address: str) -> tuple[grpc.Channel, Any]:
    """A channel, and the stub of the service on it."""
    channel = grpc.insecure_channel(address)
    return channel, service_pb2_grpc.GRPCInferenceServiceStub(channel)


def explained(address: str, message: Any, metadata: Metadata = EXPLAIN) -> list[dict[str, Any]]:
    """The explanations of a unary call."""
    channel, service = stub(address)
    with channel:
        try:
            _, call = service.ModelInfer.with_call(message, metadata=metadata, timeout=60)
        except grpc.RpcError as error:
            call = error
        return explanations(call.trailing_metadata())


def explanations(metadata: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
    """The explanations in trailing metadata."""
    return [json.loads(value) for key, value in metadata if key == "penstock-explain"]


def streamed(address: str, *messages: Any) -> dict[str, dict[str, Any]]:
    """The explanations of the requests of one stream, by the ids of the requests."""
    channel, service = stub(address)
    with channel:
        call = service.ModelStreamInfer(iter(messages), metadata=EXPLAIN, timeout=60)
        list(call)
        return {told["request_id"]: told for told in explanations(call.trailing_metadata())}
