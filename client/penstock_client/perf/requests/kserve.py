"""Inference requests of the KServe v2 protocol as bytes, with tensors or places of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.core.tensor import DataType, Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock_client.perf.load.job import Payload
from penstock_client.perf.requests.tensors import Step
from penstock_client.perf.server import SERVICE, ModelInfo, model_path
from penstock_client.perf.wire import grpc, http
from penstock_client.perf.wire.endpoint import Endpoint

Parameter = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor is in a region of shared memory."""

    region: str
    size: int
    offset: int

    def parameters(self) -> dict[str, Parameter]:
        """The parameters by which a tensor names its place."""
        found: dict[str, Parameter] = {
            "shared_memory_region": self.region,
            "shared_memory_byte_size": self.size,
        }
        return {**found, "shared_memory_offset": self.offset} if self.offset else found


@dataclass(frozen=True, slots=True)
class Form:
    """How requests are written: parameters, headers, tensors as JSON, places in shared memory.

    `places` are those of inputs by the number of the request, `output_places` of all of them.
    """

    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json_inputs: bool = False
    json_outputs: bool = False
    places: Sequence[Mapping[str, Place]] = ()
    output_places: Mapping[str, Place] = field(default_factory=dict)


def grpc_payloads(
    endpoint: Endpoint, model: ModelInfo, steps: Sequence[Step], form: Form, streamed: bool
) -> list[Payload]:
    """Requests for `ModelInfer`, or with `streamed` for `ModelStreamInfer`."""
    method = SERVICE + ("ModelStreamInfer" if streamed else "ModelInfer")
    head = grpc.request_head(endpoint, method, form.headers)
    payloads = []
    for number, step in enumerate(steps):
        message = pb.ModelInferRequest(model_name=model.name, model_version=model.version)
        _set(message.parameters, form.parameters)
        for name, tensor in step.items():
            _add_input(message, name, tensor, form, number)
        for name, place in form.output_places.items():
            output = message.outputs.add(name=name)
            _set(output.parameters, place.parameters())
        body = message.SerializeToString()
        payloads.append(Payload(head, body, at=len(body)))
    return payloads


def _add_input(
    message: pb.ModelInferRequest, name: str, tensor: Tensor, form: Form, number: int
) -> None:
    entry = message.inputs.add(name=name, datatype=tensor.datatype.value, shape=tensor.shape)
    if form.places:
        _set(entry.parameters, form.places[number][name].parameters())
    else:
        message.raw_input_contents.append(bytes(tensor.buffer))


def _set(target: Any, parameters: Mapping[str, Parameter]) -> None:
    for name, value in parameters.items():
        if isinstance(value, bool):
            target[name].bool_param = value
        elif isinstance(value, int):
            target[name].int64_param = value
        elif isinstance(value, float):
            target[name].double_param = value
        else:
            target[name].string_param = value


def http_payloads(
    endpoint: Endpoint, model: ModelInfo, steps: Sequence[Step], form: Form, prefix: str
) -> list[Payload]:
    """Requests for `/v2/models/MODEL/infer`."""
    path = f"{prefix}{model_path(model.name, model.version)}/infer"
    # Many servers read a body as JSON only where it is said to be that.
    kind = "json" if form.json_inputs or form.places else "octet-stream"
    head = http.request_head(endpoint, path, form.headers, f"application/{kind}")
    return [_http_payload(head, step, form, number) for number, step in enumerate(steps)]


def _http_payload(head: bytes, step: Step, form: Form, number: int) -> Payload:
    binary: list[bytes] = []
    inputs = [_http_input(name, tensor, form, number, binary) for name, tensor in step.items()]
    # The parameters come first, so that those of a sequence can be put in front of them.
    parameters = {**form.parameters, "binary_data_output": not form.json_outputs}
    content: dict[str, Any] = {"parameters": parameters, "inputs": inputs}
    if form.output_places:
        content["outputs"] = [
            {"name": name, "parameters": place.parameters()}
            for name, place in form.output_places.items()
        ]
    written = json.dumps(content, separators=(",", ":")).encode()
    return Payload(
        head, written + b"".join(binary), at=len(b'{"parameters":{'), json_size=len(written)
    )


def _http_input(
    name: str, tensor: Tensor, form: Form, number: int, binary: list[bytes]
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": name,
        "datatype": tensor.datatype.value,
        "shape": list(tensor.shape),
    }
    if form.places:
        entry["parameters"] = form.places[number][name].parameters()
    elif form.json_inputs:
        entry["data"] = plain(tensor)
    else:
        binary.append(bytes(tensor.buffer))
        entry["parameters"] = {"binary_data_size": len(binary[-1])}
    return entry


def plain(tensor: Tensor) -> list[Any]:
    """The elements of a tensor as JSON has them, flat."""
    if tensor.datatype is DataType.BYTES:
        return [element.decode("utf-8", "replace") for element in tensor.elements()]
    found: list[Any] = tensor.numpy().reshape(-1).tolist()
    return found


def generate_payloads(
    endpoint: Endpoint,
    model: ModelInfo,
    steps: Sequence[Step],
    form: Form,
    streamed: bool,
    prefix: str,
) -> list[Payload]:
    """Requests for `/v2/models/MODEL/generate`, or with `streamed` for `generate_stream`."""
    verb = "generate_stream" if streamed else "generate"
    path = f"{prefix}{model_path(model.name, model.version)}/{verb}"
    head = http.request_head(endpoint, path, form.headers, "application/json")
    return [Payload(head, json.dumps(_fields(step, form)).encode()) for step in steps]


def _fields(step: Step, form: Form) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, tensor in step.items():
        values = plain(tensor)
        found[name] = values[0] if len(values) == 1 else values
    return {**found, "parameters": dict(form.parameters)} if form.parameters else found
