"""Between messages and core values: every datatype, typed and raw, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InferenceError, InternalError, InvalidRequestError
from penstock.core.request import InferenceRequest, InferenceResponse, RequestScope
from penstock.core.request_limits import MOST_DIMENSIONS, MOST_PARAMETERS, MOST_TENSORS
from penstock.core.tensor import DataType, Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.messages import decode_request, encode_response, mark_final
from rpc.manual import received

DATATYPES = [datatype for datatype in DataType if datatype is not DataType.INVALID]

TYPED: dict[str, tuple[str, list[Any], bytes]] = {
    "BOOL": ("bool_contents", [True, False], b"\1\0"),
    "INT8": ("int_contents", [1, -1], b"\x01\xff"),
    "INT16": ("int_contents", [1, -1], b"\x01\0\xff\xff"),
    "INT32": ("int_contents", [1, -1], b"\x01\0\0\0\xff\xff\xff\xff"),
    "INT64": ("int64_contents", [-(1 << 63)], b"\0\0\0\0\0\0\0\x80"),
    "UINT8": ("uint_contents", [1, 255], b"\x01\xff"),
    "UINT16": ("uint_contents", [1, 65535], b"\x01\0\xff\xff"),
    "UINT32": ("uint_contents", [(1 << 32) - 1], b"\xff\xff\xff\xff"),
    "UINT64": ("uint64_contents", [(1 << 64) - 1], b"\xff" * 8),
    "FP32": ("fp32_contents", [1.0, -2.5], np.array([1.0, -2.5], "<f4").tobytes()),
    "FP64": ("fp64_contents", [0.1], np.array([0.1], "<f8").tobytes()),
    "BYTES": ("bytes_contents", [b"a\0b", b""], b"\3\0\0\0a\0b\0\0\0\0"),
}
VALUES = {field: values for field, values, _ in TYPED.values()}
"""Values that each field of typed contents can hold."""


def message(*tensors: tuple[str, str, list[int]], raw: tuple[bytes, ...] = ()) -> Any:
    """A request for the model 'm' with inputs by name, datatype and shape."""
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=raw)
    for name, datatype, shape in tensors:
        request.inputs.add(name=name, datatype=datatype, shape=shape)
    return request


@st.composite
def any_request(draw: st.DrawFn) -> Any:
    """A request of which each part may be there or not, and may be wrong."""
    datatypes = st.sampled_from([*TYPED, "FP16", "BF16", "", "float"])
    shapes = st.lists(st.sampled_from([-1, 0, 1, 2, 1 << 62]), max_size=3)
    tensors = st.lists(st.tuples(st.sampled_from("xyz"), datatypes, shapes), max_size=3)
    request = message(*draw(tensors), raw=tuple(draw(st.lists(st.binary(max_size=9), max_size=3))))
    for tensor in request.inputs:
        for field in draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=2)):
            getattr(tensor.contents, field).extend(VALUES[field])
    for key in draw(st.sets(st.sampled_from(["p", "priority", "timeout", "triton_x"]))):
        request.parameters[key].int64_param = draw(st.integers(-2, 2))
    return request


# -- requests -------------------------------------------------------------------------------------


@pytest.mark.contract("G-24")
def test_request_keeps_all_of_its_fields() -> None:
    request = message(("x", "FP32", [1]), raw=(b"\0\0\0\0",))
    request.model_version, request.id = "3", "r"
    request.outputs.add(name="a")
    request.outputs.add(name="b")
    request.parameters["p"].string_param = "q"
    request.parameters["priority"].int64_param = 2
    decoded = decode_request(received(request), RequestScope(1.5))
    assert (decoded.model_name, decoded.model_version, decoded.id) == ("m", "3", "r")
    assert decoded.requested_outputs == ("a", "b")
    assert (decoded.parameters, decoded.priority, decoded.scope.deadline) == ({"p": "q"}, 2, 1.5)


@pytest.mark.contract("N-13")
def test_output_that_is_named_twice_is_refused() -> None:
    asked = message(("x", "INT8", [1]), raw=(b"a",))
    asked.outputs.extend([pb.ModelInferRequest.InferRequestedOutputTensor(name="y")] * 2)
    with pytest.raises(InvalidRequestError, match="output 'y' is requested more than once"):
        decode_request(received(asked))


@pytest.mark.contract("G-30")
@pytest.mark.parametrize("datatype", DATATYPES)
@given(data=st.binary(max_size=64), shape=st.lists(st.integers(-3, 1 << 40), max_size=4))
def test_raw_contents_are_taken_as_they_are(
    datatype: DataType, data: bytes, shape: list[int]
) -> None:
    """Whether they fit the shape is for the admission to say."""
    decoded = decode_request(received(message(("x", datatype.value, shape), raw=(data,))))
    tensor = decoded.inputs["x"]
    assert (tensor.datatype, tensor.shape, bytes(tensor.buffer)) == (datatype, tuple(shape), data)


@pytest.mark.contract("G-27")
@pytest.mark.parametrize("datatype", TYPED)
def test_typed_contents_become_bytes(datatype: str) -> None:
    field, values, data = TYPED[datatype]
    request = message(("x", datatype, [len(values)]))
    getattr(request.inputs[0].contents, field).extend(values)
    assert bytes(decode_request(received(request)).inputs["x"].buffer) == data


@pytest.mark.parametrize(
    ("datatype", "field", "value", "data"),
    [
        ("UINT8", "uint_contents", 300, b"\x2c"),
        ("INT8", "int_contents", -129, b"\x7f"),
        ("UINT16", "uint_contents", 65537, b"\x01\0"),
        ("INT16", "int_contents", 1 << 15, b"\0\x80"),
    ],
)
def test_values_too_large_are_cut(datatype: str, field: str, value: int, data: bytes) -> None:
    request = message(("x", datatype, [1]))
    getattr(request.inputs[0].contents, field).append(value)
    assert bytes(decode_request(received(request)).inputs["x"].buffer) == data


@pytest.mark.parametrize(
    ("datatype", "field"),
    [
        (datatype, field)
        for datatype in DATATYPES
        for field in VALUES
        if field != TYPED.get(datatype.value, ("",))[0]
    ],
)
def test_contents_of_another_datatype_are_refused(datatype: DataType, field: str) -> None:
    request = message(("x", datatype.value, [1]))
    getattr(request.inputs[0].contents, field).extend(VALUES[field])
    with pytest.raises(InvalidRequestError, match=rf"expected datatype '{datatype.value}'$"):
        decode_request(received(request))


def test_empty_contents_are_no_elements() -> None:
    request = message(("x", "FP32", [0]))
    request.inputs[0].contents.SetInParent()
    assert bytes(decode_request(received(request)).inputs["x"].buffer) == b""


def test_unknown_datatype_is_left_to_the_admission() -> None:
    decoded = decode_request(received(message(("x", "FLOAT32", [1]), raw=(b"",))))
    assert decoded.inputs["x"].datatype is DataType.INVALID


@pytest.mark.contract("G-30")
@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (
            message(("x", "FP32", [1])),
            "^unable to find data for input tensor 'x' for model 'm' in request\\.$",
        ),
        (
            message(("x", "FP32", [1]), ("y", "FP32", [1]), raw=(b"",)),
            "^unable to find data for input tensor 'y' for model 'm' in request\\.$",
        ),
        (
            message(("x", "FP32", [1]), ("x", "FP32", [1]), raw=(b"", b"")),
            r"\[request id: <id_unknown>\] input 'x' already exists in request",
        ),
    ],
)
def test_contents_that_do_not_match_the_inputs_are_refused(request_: Any, text: str) -> None:
    with pytest.raises(InvalidRequestError, match=text):
        decode_request(received(request_))


_BESIDE_RAW = (
    "^contents field must not be specified when using raw_input_contents for 'x' for model 'm'$"
)


@pytest.mark.contract("G-30")
def test_typed_contents_beside_raw_ones_are_refused() -> None:
    request = message(("x", "FP32", [1]), raw=(b"\0\0\0\0",))
    request.inputs[0].contents.fp32_contents.append(1.0)
    with pytest.raises(InvalidRequestError, match=_BESIDE_RAW):
        decode_request(received(request))


@pytest.mark.contract("G-30")
def test_contents_in_two_fields_are_refused() -> None:
    request = message(("x", "INT32", [1]))
    request.inputs[0].contents.int_contents.append(1)
    request.inputs[0].contents.fp32_contents.append(1.0)
    with pytest.raises(
        InvalidRequestError,
        match=r"^unexpected explicit tensor data for input tensor 'x' .* already supplied",
    ):
        decode_request(received(request))


@given(any_request())
def test_any_message_is_decoded_or_refused(request_: Any) -> None:
    """Never anything else than a request or an error that a client may see."""
    with suppress(InferenceError):
        assert isinstance(decode_request(received(request_)), InferenceRequest)


# -- responses ------------------------------------------------------------------------------------


def encoded(response: InferenceResponse, *outputs: str) -> pb.ModelInferResponse:
    request = InferenceRequest("m", id="r", requested_outputs=outputs)
    return encode_response(request, "3", response)


@pytest.mark.contract("G-25")
def test_response_holds_model_version_and_id() -> None:
    reply = encoded(InferenceResponse())
    assert reply == pb.ModelInferResponse(model_name="m", model_version="3", id="r")


@pytest.mark.contract("G-25")
@pytest.mark.parametrize("datatype", DATATYPES)
def test_outputs_are_always_raw(datatype: DataType) -> None:
    reply = encoded(InferenceResponse({"y": Tensor(datatype, (2, 1), b"12345678")}))
    (output,) = reply.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("y", datatype.value, [2, 1])
    assert not output.HasField("contents")
    assert list(reply.raw_output_contents) == [b"12345678"]


@pytest.mark.contract("GP-14")
def test_binary_data_parameter_of_http_is_ignored() -> None:
    request = message(("x", "UINT8", [1]), raw=(b"1",))
    request.parameters["binary_data_output"].bool_param = False
    request.outputs.add(name="y").parameters["binary_data"].bool_param = False
    decoded = decode_request(received(request))
    assert decoded.requested_outputs == ("y",)
    response = InferenceResponse({"y": Tensor(DataType.UINT8, (1,), b"1")})
    assert list(encode_response(decoded, "1", response).raw_output_contents) == [b"1"]


def test_outputs_keep_the_models_order() -> None:
    outputs = {name: Tensor(DataType.UINT8, (1,), name.encode()) for name in "cab"}
    reply = encoded(InferenceResponse(outputs), "b", "c")
    assert [output.name for output in reply.outputs] == ["c", "b"]
    assert list(reply.raw_output_contents) == [b"c", b"b"]


@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype=np.int64).reshape(2, 3).T, np.float32(3).reshape(()), np.empty((0, 2))],
    ids=["not contiguous", "scalar", "empty"],
)
def test_arrays_of_any_layout_are_encoded(array: Any) -> None:
    reply = encoded(InferenceResponse({"y": Tensor.from_numpy(array)}))
    assert reply.raw_output_contents[0] == array.tobytes()
    assert tuple(reply.outputs[0].shape) == array.shape


@pytest.mark.contract("GP-09")
def test_response_parameters_keep_their_types() -> None:
    values: dict[str, Any] = {"b": True, "i": -(1 << 63), "f": 0.5, "s": "é"}
    parameters = encoded(InferenceResponse(parameters=values)).parameters
    kinds = {key: value.WhichOneof("parameter_choice") for key, value in parameters.items()}
    expected = {"b": "bool_param", "i": "int64_param", "f": "double_param", "s": "string_param"}
    assert kinds == expected
    assert {key: getattr(parameters[key], kind) for key, kind in kinds.items()} == values


@pytest.mark.contract("GP-09")
@pytest.mark.parametrize("value", [1 << 63, [1], None, b"bytes", "\ud800", object()])
def test_parameter_that_has_no_form_is_an_internal_error(value: Any) -> None:
    with pytest.raises(InternalError, match="response parameter 'p'"):
        encoded(InferenceResponse(parameters={"p": value}))


@pytest.mark.contract("GP-06")
@pytest.mark.parametrize("final", [True, False])
def test_final_flag_is_a_parameter(final: bool) -> None:
    reply = encoded(InferenceResponse())
    mark_final(reply, final)
    assert reply.parameters["triton_final_response"].bool_param is final


def test_dimensions_have_a_bound() -> None:
    most = decode_request(received(message(("x", "INT8", [1] * MOST_DIMENSIONS), raw=(b"a",))))
    assert len(most.inputs["x"].shape) == MOST_DIMENSIONS
    one_more = message(("x", "INT8", [1] * (MOST_DIMENSIONS + 1)), raw=(b"a",))
    with pytest.raises(InvalidRequestError, match=r"^input 'x' has 1025 dimensions, which"):
        decode_request(received(one_more))


def test_parameters_are_counted_before_they_are_converted() -> None:
    request = message(("x", "INT8", [1]), raw=(b"a",))
    for number in range(MOST_PARAMETERS + 1):
        request.parameters[f"triton_{number}"].bool_param = True  # each of them would be refused
    with pytest.raises(InvalidRequestError, match=r"^request has 4097 parameters or more, which"):
        decode_request(received(request))


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_tensors_are_counted_before_they_are_read(kind: str) -> None:
    request = message(("x", "INT8", [1]), raw=(b"a",))
    for _ in range(MOST_TENSORS + 1 - len(getattr(request, kind))):
        getattr(request, kind).add(name="x")
    with pytest.raises(InvalidRequestError, match=rf"^request has 4097 {kind} or more, which"):
        decode_request(received(request))


def test_errors_do_not_repeat_a_long_text() -> None:
    twice = message(("x", "INT8", [1]), ("x", "INT8", [1]), raw=(b"a", b"b"))
    twice.id = "i" * 9000
    without = message(("n" * 9000, "INT8", [1]))
    wrong = message(("x", "INT8", [1]), raw=(b"a",))
    wrong.parameters["k" * 9000].SetInParent()
    for request in (twice, without, wrong):
        with pytest.raises(InvalidRequestError) as refused:
            decode_request(received(request))
        assert len(refused.value.message) < 1300
