"""Inference requests of a load as bytes: what a server reads in them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from penstock.core.tensor import Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock_client.perf.requests.kserve import (
    Form,
    Place,
    generate_payloads,
    grpc_payloads,
    http_payloads,
)
from penstock_client.perf.server import ModelInfo
from penstock_client.perf.wire.endpoint import Endpoint

SERVER = Endpoint("h", 1)
MODEL = ModelInfo("m", "3", (), ())
STEP = {
    "A": Tensor.from_numpy(np.array([[1, 2]], np.int32)),
    "B": Tensor.from_strings(["é"]),
}
PARAMETERS: dict[str, Any] = {"a": True, "b": 2, "c": 0.5, "d": "x"}
PLACES = {"A": Place("r", 8, 0), "B": Place("r", 6, 8)}


def asked(form: Form, *, streamed: bool = False) -> tuple[bytes, pb.ModelInferRequest]:
    (payload,) = grpc_payloads(SERVER, MODEL, [STEP], form, streamed)
    assert payload.at == len(payload.body)
    return payload.head, pb.ModelInferRequest.FromString(payload.body)


def test_a_message_names_model_version_and_parameters() -> None:
    head, message = asked(Form(PARAMETERS, {"X-Own": "v"}))
    assert b"/inference.GRPCInferenceService/ModelInfer" in head
    assert b"ModelStreamInfer" not in head
    assert b"x-own" in head
    assert (message.model_name, message.model_version) == ("m", "3")
    parameters = message.parameters
    assert (parameters["a"].bool_param, parameters["b"].int64_param) == (True, 2)
    assert (parameters["c"].double_param, parameters["d"].string_param) == (0.5, "x")
    assert [(one.name, one.datatype, [*one.shape]) for one in message.inputs] == [
        ("A", "INT32", [1, 2]),
        ("B", "BYTES", [1]),
    ]
    assert [*message.raw_input_contents] == [bytes(each.buffer) for each in STEP.values()]
    assert b"ModelStreamInfer" in asked(Form(), streamed=True)[0]


def test_tensors_in_shared_memory_are_named_by_their_places() -> None:
    _, message = asked(Form(places=[PLACES], output_places={"OUT": Place("o", 5, 1)}))
    assert not message.raw_input_contents
    first, second = (
        {name: value.int64_param or value.string_param for name, value in one.parameters.items()}
        for one in message.inputs
    )
    assert first == {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    assert second == {
        **first,
        "shared_memory_byte_size": 6,
        "shared_memory_offset": 8,
    }
    (output,) = message.outputs
    assert output.name == "OUT"
    assert output.parameters["shared_memory_offset"].int64_param == 1


def posted(form: Form) -> tuple[list[bytes], Any, bytes]:
    (payload,) = http_payloads(SERVER, MODEL, [STEP], form, "/prefix")
    text = payload.body[: payload.json_size]
    assert payload.body[: payload.at] == b'{"parameters":{'
    return payload.head.split(b"\r\n"), json.loads(text), payload.body[payload.json_size :]


def test_a_body_is_json_and_behind_it_the_tensors() -> None:
    head, content, binary = posted(Form(PARAMETERS, {"X-Own": "v"}))
    assert head[:2] == [b"POST /prefix/v2/models/m/versions/3/infer HTTP/1.1", b"Host: h:1"]
    assert b"Content-Type: application/octet-stream" in head
    assert b"X-Own: v" in head
    assert content == {
        "parameters": {**PARAMETERS, "binary_data_output": True},
        "inputs": [
            {
                "name": "A",
                "datatype": "INT32",
                "shape": [1, 2],
                "parameters": {"binary_data_size": 8},
            },
            {
                "name": "B",
                "datatype": "BYTES",
                "shape": [1],
                "parameters": {"binary_data_size": 6},
            },
        ],
    }
    assert binary == b"".join(bytes(each.buffer) for each in STEP.values())


def test_tensors_may_be_json_or_in_shared_memory() -> None:
    head, content, binary = posted(Form(json_inputs=True, json_outputs=True))
    assert b"Content-Type: application/json" in head
    assert [one["data"] for one in content["inputs"]] == [[1, 2], ["é"]]
    assert (content["parameters"], binary) == ({"binary_data_output": False}, b"")
    head, content, binary = posted(Form(places=[PLACES], output_places={"OUT": PLACES["B"]}))
    assert b"Content-Type: application/json" in head
    assert content["inputs"][1]["parameters"] == PLACES["B"].parameters()
    assert content["outputs"] == [{"name": "OUT", "parameters": PLACES["B"].parameters()}]
    assert binary == b""


@pytest.mark.parametrize(("streamed", "verb"), [(False, "generate"), (True, "generate_stream")])
def test_generate_takes_elements_as_fields(streamed: bool, verb: str) -> None:
    (payload,) = generate_payloads(SERVER, MODEL, [STEP], Form(PARAMETERS), streamed, "")
    first = f"POST /v2/models/m/versions/3/{verb} HTTP/1.1\r\n".encode()
    assert payload.head.startswith(first)
    assert json.loads(payload.body) == {"A": [1, 2], "B": "é", "parameters": PARAMETERS}
    (bare,) = generate_payloads(SERVER, MODEL, [STEP], Form(), streamed, "")
    assert "parameters" not in json.loads(bare.body)
