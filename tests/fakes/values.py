"""Requests, responses and configurations as tests need them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.core.config import ModelConfig, ModelInput, ModelOutput
from penstock.core.request import InferenceRequest, InferenceResponse, RequestScope
from penstock.core.stream import ResponseStream
from penstock.core.tensor import DataType, Tensor
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics

_OF_SCOPE = {field.name for field in fields_of(RequestScope)}


def make_request(id: str = "", rows: int = 1, width: int = 1, **fields: Any) -> InferenceRequest:
    """A request for the model of `model_config`; its input is `rows` x `width` zeros.

    `fields` are those of `InferenceRequest` and of its `RequestScope`.
    """
    tensor = Tensor.from_numpy(np.zeros((rows, width), np.int32))
    known = {name: fields.pop(name) for name in _OF_SCOPE & fields.keys()}
    given: dict[str, Any] = {"model_name": "m", "inputs": {"IN": tensor}, **fields}
    return InferenceRequest(id=id, scope=RequestScope(**known), **given)


def scoped(request: InferenceRequest, **fields: Any) -> InferenceRequest:
    """The request, of which the server knows these fields of a `RequestScope`."""
    return request._replace(scope=RequestScope(**fields))


def make_inference(
    id: str = "",
    rows: int = 1,
    width: int = 1,
    statistics: Statistics | None = None,
    **fields: Any,
) -> Inference:
    """An admitted request."""
    request = make_request(id, rows, width, **fields)
    return Inference(request, rows, statistics or Statistics(), "1")


def make_response(mark: int | str = 0, *, final: bool = False) -> InferenceResponse:
    """A response that can be told from others by its parameter `mark`."""
    return InferenceResponse(parameters={"mark": mark}, final=final)


def mark(response: InferenceResponse) -> Any:
    return response.parameters["mark"]


async def marks(stream: AsyncIterator[InferenceResponse]) -> list[Any]:
    """Read a stream to its end."""
    return [mark(response) async for response in stream]


def model_config(**changes: Any) -> ModelConfig:
    """A model with one input and one output of any width, batching up to 8."""
    config = ModelConfig(
        name="m",
        backend="fake",
        max_batch_size=8,
        input=(ModelInput(name="IN", data_type=DataType.INT32, dims=(-1,)),),
        output=(ModelOutput(name="OUT", data_type=DataType.INT32, dims=(-1,)),),
    )
    return replace(config, **changes)


def answer(inference: Inference) -> None:
    """Answer with the request's id as mark, and with its input as output if it has one."""
    request = inference.request
    outputs = {"OUT": request.inputs["IN"]} if "IN" in request.inputs else {}
    inference.stream.send(InferenceResponse(outputs, {"mark": request.id}, final=True))


def sent(*responses: InferenceResponse) -> ResponseStream:
    """A stream into which these responses were sent."""
    stream = ResponseStream()
    for response in responses:
        stream.send(response)
    return stream
