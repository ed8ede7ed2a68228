"""Requests whose tensors stay where they came."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.infer_message import parse_infer

LARGE = 1 << 14

contents = st.lists(st.one_of(st.binary(max_size=40), st.just(bytes(LARGE))), max_size=4)


def request(raw: list[bytes]) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="m", id="7", raw_input_contents=raw)
    for number, data in enumerate(raw):
        tensor = message.inputs.add(name=f"x{number}", datatype="UINT8", shape=[len(data)])
        tensor.parameters["p"].int64_param = number
    message.parameters["priority"].int64_param = 3
    return message


@given(contents)
def test_head_and_contents_are_those_of_the_message(raw: list[bytes]) -> None:
    message = request(raw)
    received = parse_infer(message.SerializeToString())
    assert [bytes(data) for data in received.raw] == raw
    del message.raw_input_contents[:], received.head.raw_input_contents[:]
    assert received.head == message


@given(contents, st.sampled_from([bytearray, memoryview]))
def test_any_memory_will_do(raw: list[bytes], kind: type[bytearray] | type[memoryview]) -> None:
    received = parse_infer(kind(request(raw).SerializeToString()))
    assert [bytes(data) for data in received.raw] == raw


def test_tensors_of_a_large_message_are_views_of_it() -> None:
    memory = bytearray(request([bytes(LARGE)]).SerializeToString())
    (tensor,) = parse_infer(memory).raw
    memory[-1] = 9
    assert tensor[-1] == 9


def test_fields_in_an_unusual_order_are_understood() -> None:
    raw = pb.ModelInferRequest(raw_input_contents=[bytes(LARGE), b"end"]).SerializeToString()
    rest = pb.ModelInferRequest(model_name="m").SerializeToString()
    received = parse_infer(raw + rest)
    assert received.head.model_name == "m"
    assert [bytes(data) for data in received.raw] == [bytes(LARGE), b"end"]


def test_fields_that_nobody_knows_are_passed_over() -> None:
    unknown = b"\xa0\x06\x01" + b"\xaa\x06\x03abc"  # fields 100 and 101
    received = parse_infer(unknown + request([bytes(LARGE)]).SerializeToString() + unknown)
    assert [bytes(data) for data in received.raw] == [bytes(LARGE)]
    assert received.head.id == "7"


@pytest.mark.parametrize("cut", [1, 100, LARGE])
def test_message_that_is_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(DecodeError):
        parse_infer(request([bytes(2 * LARGE)]).SerializeToString()[:-cut])


@given(st.binary(max_size=64))
def test_what_is_no_request_is_refused_as_protobuf_refuses_it(garbage: bytes) -> None:
    data = garbage + bytes(LARGE)
    try:
        expected = pb.ModelInferRequest.FromString(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            parse_infer(data)
    else:
        assert parse_infer(data).raw == expected.raw_input_contents
