"""The JSON of trace files, in the form that the real server has."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from penstock.core.tensor import DataType, Tensor
from penstock.core.timeline import Trace
from penstock.tracing.trace_json import tensor_text, trace_json
from tracing.traces import finish, model_request, open_trace, tensors


def objects(trace: Trace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(f"[{trace_json(finish(trace))}]")
    return found


def stamp(number: int, name: str, at: int) -> dict[str, Any]:
    return {"id": number, "timestamps": [{"name": name, "ns": at}]}


@pytest.mark.contract("T-07", "T-09", "T-10")
def test_a_request_is_named_and_then_told_in_order() -> None:
    """The endpoint's points are the request's own."""
    trace = open_trace()
    trace.root.mark("GRPC_WAITREAD_START", 10)
    request = model_request(
        trace.root, "simple", ("REQUEST_START", 20), ("REQUEST_END", 40), id="mine", version="3"
    )
    trace.root.mark("GRPC_SEND_END", 50)
    tensors(
        request, "TENSOR_QUEUE_INPUT", 30, {"IN": Tensor.from_numpy(np.arange(4.0).reshape(2, 2))}
    )
    assert objects(trace) == [
        {"id": 1, "model_name": "simple", "model_version": 3, "request_id": "mine"},
        stamp(1, "GRPC_WAITREAD_START", 10),
        stamp(1, "REQUEST_START", 20),
        {
            "id": 1,
            "activity": "TENSOR_QUEUE_INPUT",
            "tensor": {"name": "IN", "data": "0,1,2,3", "shape": "2,2", "dtype": "FP64"},
        },
        stamp(1, "REQUEST_END", 40),
        stamp(1, "GRPC_SEND_END", 50),
    ]


@pytest.mark.contract("T-23")
def test_nested_requests_name_their_parents() -> None:
    trace = open_trace(frozenset({"TIMESTAMPS"}))
    top = model_request(trace.root, "ensemble", ("REQUEST_START", 1))
    step = model_request(top, "step", ("REQUEST_START", 2))
    model_request(step, "called", ("REQUEST_START", 3))
    named = [each for each in objects(trace) if "model_name" in each]
    assert [(each["id"], each["model_name"], each.get("parent_id")) for each in named] == [
        (3, "called", 2),
        (2, "step", 1),
        (1, "ensemble", None),
    ]


@pytest.mark.contract("T-05")
@pytest.mark.parametrize(
    ("levels", "kinds"),
    [
        ({"TIMESTAMPS"}, ["model_name", "timestamps"]),
        ({"TENSORS"}, ["activity"]),
        ({"TIMESTAMPS", "TENSORS"}, ["model_name", "timestamps", "activity"]),
    ],
)
def test_levels(levels: set[str], kinds: list[str]) -> None:
    trace = open_trace(frozenset(levels))
    request = model_request(trace.root, "simple", ("REQUEST_START", 1))
    if trace.takes_tensors:
        tensors(request, "TENSOR_QUEUE_INPUT", 2, {"IN": Tensor.from_strings([b"a"], [1])})
    assert [list(each)[1] for each in objects(trace)] == kinds


@pytest.mark.contract("T-18")
def test_points_of_models_are_kept_and_the_servers_own_are_not() -> None:
    trace = open_trace()
    points = [("CACHE_LOOKUP_START", 1), ("CUSTOM", 2), ("FIRST_RESPONSE", 3)]
    model_request(trace.root, "simple", *points)
    assert objects(trace)[1:] == [stamp(1, "CUSTOM", 2)]


@pytest.mark.contract("T-10")
def test_only_the_first_response_of_a_stream_completes() -> None:
    trace = open_trace()
    model_request(trace.root, "simple")
    for at in (1, 3):
        trace.root.mark("INFER_RESPONSE_COMPLETE", at)
        trace.root.mark("GRPC_SEND_START", at + 1)
    names = [each["timestamps"][0]["name"] for each in objects(trace)[1:]]
    assert names == ["INFER_RESPONSE_COMPLETE", "GRPC_SEND_START", "GRPC_SEND_START"]


def test_a_request_that_no_model_got_leaves_nothing() -> None:
    trace = open_trace()
    trace.root.mark("HTTP_RECV_START", 1)
    assert objects(trace) == []


@pytest.mark.contract("T-07")
@pytest.mark.parametrize(
    ("values", "datatype", "text"),
    [
        ([0.1, 1e-5, 1e20, np.inf, -np.inf, np.nan, 123456789.0], DataType.FP32,
         "0.1,1e-05,1e+20,inf,-inf,nan,1.23457e+08"),
        ([1.5, 2], DataType.FP16, "1.5,2"),
        ([True, False], DataType.BOOL, "1,0"),
        ([2**62, -1], DataType.INT64, "4611686018427387904,-1"),
        ([200, 0], DataType.UINT8, "200,0"),
    ],
)  # fmt: skip
def test_elements_are_text_as_the_real_server_prints_them(
    values: list[Any], datatype: DataType, text: str
) -> None:
    """But for 8-bit integers and half floats, which it prints as characters, or not at all."""
    assert tensor_text(Tensor.from_numpy(np.array(values, datatype.numpy))) == text


def test_bfloat16_elements_are_numbers() -> None:
    bits = np.array([0x3FC0, 0xC000], np.uint16)
    assert tensor_text(Tensor.from_numpy(bits, DataType.BF16)) == "1.5,-2"


def test_elements_of_bytes_are_quoted() -> None:
    tensor = Tensor.from_strings([b'a"b', b"", b"\xff\x00\n", "é".encode()], [4])
    trace = open_trace()
    tensors(model_request(trace.root, "m"), "TENSOR_QUEUE_INPUT", 2, {"IN": tensor})
    (told,) = [each["tensor"]["data"] for each in objects(trace) if "tensor" in each]
    assert told == '"a"b","","\\xff\x00\n","é"'


def test_an_output_that_is_not_whole_is_told_and_does_no_harm() -> None:
    trace = open_trace()
    request = model_request(trace.root, "m", version="")
    tensors(request, "TENSOR_QUEUE_INPUT", 2, {"IN": Tensor(DataType.BYTES, (2,), b"\x09")})
    tensors(request, "TENSOR_BACKEND_OUTPUT", 3, {"OUT": Tensor(DataType.FP32, (2,), b"123")})
    told = objects(trace)
    assert told[0]["model_version"] == -1
    assert [each["tensor"]["data"][:14] for each in told[1:]] == ["not readable: "] * 2
