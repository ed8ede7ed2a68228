"""Encoder and decoder of the protocol's HTTP bodies: a head of JSON, then tensors in binary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from penstock.core.tensor import DataType, Tensor
from penstock_client.client.errors import InternalError, InvalidArgumentError
from penstock_client.client.grpc_messages import place_parameters
from penstock_client.client.request import InferRequest, Result
from penstock_client.client.shared_memory import SharedTensor
from penstock_client.reading.views import ModelMetadata

_SIZE = "binary_data_size"


def encode(request: InferRequest) -> tuple[bytes, int]:
    """The body of a request, and the length of its head."""
    inputs: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for name, tensor in request.inputs.items():
        head: dict[str, Any] = {
            "name": name,
            "datatype": str(tensor.datatype),
            "shape": list(tensor.shape),
        }
        if isinstance(tensor, SharedTensor):
            head["parameters"] = place_parameters(tensor)
        else:
            parts.append(bytes(tensor.buffer))
            head["parameters"] = {_SIZE: len(parts[-1])}
        inputs.append(head)
    body: dict[str, Any] = {
        "id": request.id,
        "parameters": {**request.parameters, "binary_data_output": True},
        "inputs": inputs,
    }
    if request.outputs:
        body["outputs"] = [
            {"name": name, "parameters": place_parameters(place) if place else _BINARY}
            for name, place in request.outputs.items()
        ]
    json = orjson.dumps(body)
    return b"".join([json, *parts]), len(json)


_BINARY = {"binary_data": True}


def decode(body: bytes, head_size: int, request: InferRequest) -> Result:
    """The result in a body."""
    head = orjson.loads(body[:head_size])
    at = head_size
    outputs: dict[str, Tensor] = {}
    for output in head.get("outputs", ()):
        name, size = output["name"], output.get("parameters", {}).get(_SIZE)
        place = request.outputs.get(name)
        if place is not None:
            outputs[name] = place.holding(output["datatype"], output["shape"])
        elif size is None:
            outputs[name] = from_json(output["datatype"], output["data"], output["shape"])
        else:
            data = memoryview(body)[at : at + size]
            outputs[name] = Tensor(DataType(output["datatype"]), output["shape"], data)
            at += size
    return Result(
        head.get("model_name", request.model),
        str(head.get("model_version", "")),
        head.get("id", ""),
        head.get("parameters", {}),
        outputs,
    )


def from_json(datatype: str, data: Any, shape: Any = None) -> Tensor:
    """A tensor whose elements are JSON."""
    kind = DataType(datatype)
    if kind is DataType.BYTES:
        values = np.array(data, dtype=np.object_).reshape(-1).tolist()
        return Tensor.from_strings(values, shape)
    array = np.array(data, dtype=kind.numpy)
    return Tensor.from_numpy(array if shape is None else array.reshape(shape))


_NOT_GENERATED = {"priority", "sequence_id", "sequence_start", "sequence_end"}
"""What the generate endpoints would hand to the model as parameters of its own."""


def encode_generate(request: InferRequest) -> bytes:
    """The body of a generate request, whose tensors have one dimension at most."""
    if unknown := sorted(_NOT_GENERATED & request.parameters.keys()):
        raise InvalidArgumentError(
            f"streams over HTTP know no {', '.join(unknown)}; use the gRPC address"
        )
    members: dict[str, Any] = {"id": request.id} if request.id else {}
    for name, tensor in request.inputs.items():
        if isinstance(tensor, SharedTensor):
            raise InvalidArgumentError(
                "streams over HTTP take no shared memory; use the gRPC address"
            )
        members[name] = _json_elements(tensor)
    return orjson.dumps({**members, "parameters": dict(request.parameters)})


def decode_event(event: Mapping[str, Any], metadata: ModelMetadata, model: str) -> Result:
    """The response in an event of a generate stream."""
    datatypes = {tensor.name: tensor.datatype for tensor in metadata.outputs}
    outputs = {
        name: from_json(datatypes[name], value if isinstance(value, list) else [value])
        for name, value in event.items()
        if name in datatypes
    }
    told = ("model_name", "model_version", "id")
    others = {k: v for k, v in event.items() if k not in outputs and k not in told}
    version = str(event.get("model_version", ""))
    return Result(event.get("model_name", model), version, event.get("id", ""), others, outputs)


def _json_elements(tensor: Tensor) -> Any:
    """The elements as JSON; a single one not in a list."""
    if tensor.datatype is DataType.BYTES:
        elements: list[Any] = [each.decode() for each in tensor.elements()]
    elif tensor.datatype is DataType.BF16:
        raise InvalidArgumentError("streams over HTTP take no BF16; use the gRPC address")
    else:
        elements = tensor.numpy().reshape(-1).tolist()
    return elements[0] if len(elements) == 1 else elements


def error_text(body: bytes, status: int) -> str:
    """The text of an error reply."""
    try:
        told = orjson.loads(body)
        return str(told["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body.decode(errors="replace")[:1000] or f"HTTP status {status}"


def event_of(data: bytes, address: str) -> dict[str, Any]:
    """The JSON of an event; raises `InternalError` for an error that it tells."""
    event: dict[str, Any] = orjson.loads(data)
    if "error" in event:
        raise InternalError(str(event["error"]), address)
    return event
