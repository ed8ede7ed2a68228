"""Parameters of tensors that are in memory of the client's, over gRPC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.posix_memory import PosixMemory
from penstock.core.errors import InferenceError, InternalError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.messages import decode_request, encode_response
from penstock.shared_memory.registry import Regions
from rpc.manual import received

IN_REGION = {"region": "r", "offset": 0, "byte_size": 8}


def request(**inputs: dict[str, Any]) -> Any:
    """A request whose inputs, INT32 of shape [2], have these parameters of shared memory."""
    message = pb.ModelInferRequest(model_name="m")
    for name, parameters in inputs.items():
        share(message.inputs.add(name=name, datatype="INT32", shape=[2]), parameters)
    return message


def share(tensor: Any, parameters: dict[str, Any]) -> None:
    for key, value in parameters.items():
        field = "string_param" if isinstance(value, str) else "int64_param"
        setattr(tensor.parameters[f"shared_memory_{key}"], field, value)


@pytest.mark.contract("GP-11")
def test_input_is_read_from_the_region(regions: Regions, memory: PosixMemory) -> None:
    np.frombuffer(memory.data, np.int32)[2:4] = 5, 6
    decoded = decode_request(received(request(x=IN_REGION | {"offset": 8})), regions=regions)
    assert decoded.inputs["x"].numpy().tolist() == [5, 6]


@pytest.mark.contract("G-30")
def test_raw_contents_are_for_the_other_inputs(regions: Regions) -> None:
    message = request(x=IN_REGION, y={}, z=IN_REGION)
    message.raw_input_contents.append(b"\1\0\0\0\2\0\0\0")
    decoded = decode_request(received(message), regions=regions)
    assert decoded.inputs["y"].numpy().tolist() == [1, 2]
    assert decoded.inputs["z"].numpy().tolist() == [0, 0]


@pytest.mark.contract("GP-11")
@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (
            {"region": 5},
            "invalid value type for 'shared_memory_region' parameter for tensor 'x',"
            " expected string_param.",
        ),
        (
            IN_REGION | {"byte_size": "8"},
            "invalid value type for 'shared_memory_byte_size' parameter for tensor 'x',"
            " expected int64_param.",
        ),
        (
            IN_REGION | {"offset": "0"},
            "invalid value type for 'shared_memory_offset' parameter for tensor 'x',"
            " expected int64_param.",
        ),
        (
            {"region": "r"},
            "'shared_memory_byte_size' must be specified along with 'shared_memory_region'"
            " parameter for tensor 'x'",
        ),
        (
            {"offset": 0},
            "'shared_memory_offset' can not be specified without 'shared_memory_region'"
            " parameter for tensor 'x'",
        ),
        (
            {"byte_size": 8},
            "'shared_memory_byte_size' can not be specified without 'shared_memory_region'"
            " parameter for tensor 'x'",
        ),
        ({"region": "", "byte_size": 8}, "Unable to find shared memory region: ''"),
        (
            {"region": "r", "byte_size": -1},
            "Invalid offset + byte size for shared memory region: 'r'",
        ),
    ],
)
def test_wrong_parameters_are_refused(
    regions: Regions, parameters: dict[str, Any], text: str
) -> None:
    with pytest.raises(InferenceError) as refused:
        decode_request(received(request(x=parameters)), regions=regions)
    assert refused.value.message == text
    message = request(y=IN_REGION)
    share(message.outputs.add(name="x"), parameters)
    with pytest.raises(InferenceError) as refused:
        decode_request(received(message), regions=regions)
    assert refused.value.message == text


def test_contents_beside_a_region_are_refused(regions: Regions) -> None:
    message = request(x=IN_REGION)
    message.inputs[0].contents.SetInParent()
    with pytest.raises(InferenceError) as refused:
        decode_request(received(message), regions=regions)
    assert refused.value.message == (
        "unexpected 'content' provided when using shared memory for input tensor 'x' for model 'm'"
    )


def test_classes_do_not_go_into_a_region(regions: Regions) -> None:
    message = request(x=IN_REGION)
    share(message.outputs.add(name="y"), IN_REGION)
    message.outputs[0].parameters["classification"].int64_param = 1
    text = "output can't set both 'shared_memory_region' and 'classification'"
    with pytest.raises(InferenceError, match=text):
        decode_request(received(message), regions=regions)


@pytest.mark.contract("GP-11", "G-25")
def test_output_goes_to_the_region_and_leaves_no_bytes(
    regions: Regions, memory: PosixMemory
) -> None:
    message = request(x=IN_REGION)
    share(message.outputs.add(name="y"), IN_REGION | {"offset": 16})
    message.outputs.add(name="z")
    decoded = decode_request(received(message), regions=regions)
    tensor = Tensor.from_numpy(np.array([7, 8], np.int32))
    reply = encode_response(decoded, "1", InferenceResponse({"y": tensor, "z": tensor}))
    assert list(reply.raw_output_contents) == [b"", b"\7\0\0\0\b\0\0\0"]
    assert list(reply.outputs[0].shape) == [2]
    assert np.frombuffer(memory.data, np.int32)[4:6].tolist() == [7, 8]


@pytest.mark.contract("GP-12")
def test_output_larger_than_its_place_is_an_error(regions: Regions) -> None:
    message = request(x=IN_REGION)
    share(message.outputs.add(name="y"), IN_REGION)
    decoded = decode_request(received(message), regions=regions)
    tensor = Tensor.from_numpy(np.zeros(3, np.int32))
    with pytest.raises(InternalError, match=r"output 'y' \(8 bytes\) should be at least 12 bytes"):
        encode_response(decoded, "1", InferenceResponse({"y": tensor}))
