"""Requests whose tensors stay where they came."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.buffer import Buffer
from penstock.core.request import RequestScope
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.infer_layout import varint
from penstock.rpc.messages import (
    InferMessage,
    InferReader,
    RequestTemplate,
    decode_request,
    parse_infer,
)

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


def test_unknown_fields_are_ignored() -> None:
    unknown = b"\xa0\x06\x01" + b"\xaa\x06\x03abc"  # fields 100 and 101
    received = parse_infer(unknown + request([bytes(LARGE)]).SerializeToString() + unknown)
    assert [bytes(data) for data in received.raw] == [bytes(LARGE)]
    assert received.head.id == "7"


@pytest.mark.parametrize("cut", [1, 100, LARGE])
def test_message_that_is_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(DecodeError):
        parse_infer(request([bytes(2 * LARGE)]).SerializeToString()[:-cut])


def test_any_number_of_fields_is_understood() -> None:
    for count in (0, 1000, 1025, 5000):
        filled = b"\x0a\x00" * count + data(request([b"abc"]))
        assert seen(parse_infer(filled)) == seen(parse_infer(data(request([b"abc"]))))


@given(st.binary(max_size=64))
def test_invalid_message_is_refused_as_protobuf_refuses_it(garbage: bytes) -> None:
    data = garbage + bytes(LARGE)
    try:
        expected = pb.ModelInferRequest.FromString(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            parse_infer(data)
    else:
        assert parse_infer(data).raw == expected.raw_input_contents


# -- templates -------------------------------------------------------------------------------------


def alike(*raw: bytes, shape: int = 1, output: str = "") -> pb.ModelInferRequest:
    """A request that says nothing but its tensors."""
    message = pb.ModelInferRequest(model_name="m", raw_input_contents=raw)
    for number, _ in enumerate(raw):
        message.inputs.add(name=f"x{number}", datatype="UINT8", shape=[shape])
    if output:
        message.outputs.add(name=output)
    return message


def read(reader: InferReader, sent: Buffer) -> InferMessage:
    """The request that a reader parses in one step."""
    message = reader.read(sent)
    assert isinstance(message, InferMessage)
    return message


def same(message: InferMessage, expected: pb.ModelInferRequest) -> bool:
    """Whether this is the request that was sent."""
    return seen(message) == seen(parse_infer(data(expected)))


def seen(message: InferMessage) -> tuple[Any, ...]:
    """The fields of a request that a model sees."""
    request = decode_request(message, RequestScope(5.0))
    inputs = request.inputs.items()
    tensors = [(name, t.datatype, t.shape, bytes(t.buffer)) for name, t in inputs]
    rest = request._replace(inputs={}, template=None)
    return repr(rest), tensors


def data(message: pb.ModelInferRequest) -> bytes:
    serialized: bytes = message.SerializeToString()
    return serialized


@pytest.mark.parametrize("size", [3, LARGE])
def test_requests_of_one_template_are_decoded_once(size: int) -> None:
    reader = InferReader()
    sent = [read(reader, data(alike(bytes([n]) * size, b"ab"))) for n in range(5)]
    assert [message.template is None for message in sent] == [True, True, False, False, False]
    assert len({id(message.head) for message in sent[2:]}) == 1
    assert [bytes(message.raw[0]) for message in sent] == [bytes([n]) * size for n in range(5)]


messages = st.builds(
    alike,
    st.binary(max_size=3),
    st.binary(max_size=3),
    shape=st.integers(0, 200),
    output=st.sampled_from(["", "a", "b"]),
)


@given(st.lists(messages, max_size=30))
def test_parsed_request_equals_the_one_sent(sent: list[pb.ModelInferRequest]) -> None:
    reader = InferReader()
    assert all(same(read(reader, data(message)), message) for message in sent * 3)


@given(st.lists(st.binary(max_size=12), max_size=6))
def test_nothing_is_read_that_a_parser_would_not_read(ends: list[bytes]) -> None:
    """Bytes that look nearly like a known template are read as a parser reads them."""
    reader, beginning = InferReader(), data(alike(b"abc"))[:-6]
    for received in (*[data(alike(b"abc"))] * 3, *(beginning + end for end in ends * 3)):
        try:
            expected = parse_infer(received)
        except DecodeError:
            with pytest.raises(DecodeError):
                read(reader, received)
            continue
        found = read(reader, received)
        assert [*found.raw] == [*expected.raw]
        assert found.head.inputs == expected.head.inputs


def _with(**fields: Any) -> pb.ModelInferRequest:
    message = alike(b"abc")
    message.MergeFrom(pb.ModelInferRequest(**fields))
    return message


def _tensor(**fields: Any) -> Any:
    return pb.ModelInferRequest.InferInputTensor(datatype="UINT8", shape=[3], **fields)


@pytest.mark.parametrize("size", [4, LARGE])
def test_number_of_a_field_may_take_two_bytes(size: int) -> None:
    """Field 16 is unknown; its tag, if taken for one byte, would make raw contents of its value."""
    inner = data(pb.ModelInferRequest(raw_input_contents=[bytes(size)]))
    unknown = b"\x82\x01" + varint(len(inner)) + inner
    sent = data(pb.ModelInferRequest(model_name="m", inputs=alike(b"").inputs)) + unknown
    reader = InferReader()
    for _ in range(3):
        found = read(reader, sent)
        assert (found.head.model_name, [*found.raw], found.template) == ("m", [], None)


OUTPUT = pb.ModelInferRequest.InferRequestedOutputTensor(name="y")
ONE = pb.InferParameter(int64_param=1)


@pytest.mark.parametrize(
    "message",
    [
        _with(id="7"),
        _with(parameters={"sequence_id": ONE}),
        _with(inputs=[_tensor(name="y", parameters={"p": ONE})], raw_input_contents=[b"abc"]),
        _with(inputs=[_tensor(name="x0")], raw_input_contents=[b"abc"]),
        _with(inputs=[_tensor(name="y")]),
        _with(outputs=[OUTPUT, OUTPUT]),
        _with(raw_input_contents=[b"more"]),
        pb.ModelInferRequest(
            model_name="m",
            inputs=[_tensor(name="y", contents=pb.InferTensorContents(uint_contents=[1, 2, 3]))],
        ),
        pb.ModelInferRequest(model_name="m"),
    ],
    ids=[
        "id",
        "parameter",
        "tensor parameter",
        "twice",
        "missing",
        "output twice",
        "too many",
        "typed",
        "empty",
    ],
)
def test_other_requests_are_decoded_each_time(message: pb.ModelInferRequest) -> None:
    reader = InferReader()
    assert all(read(reader, data(message)).template is None for _ in range(4))


def kept(reader: InferReader) -> int:
    """The number of templates that a reader has cached."""
    return sum(
        len(templates)
        for lengths in reader._templates.values()
        for beginnings in lengths.values()
        for templates in beginnings.values()
    )


def test_only_so_many_templates_are_kept() -> None:
    reader = InferReader()
    for size in range(1000):
        for _ in range(3):
            read(reader, data(alike(bytes(size))))
    assert kept(reader) <= 256


def named(number: int) -> pb.ModelInferRequest:
    message = alike(b"abc")
    message.model_name = f"model {number:04}"
    return message


@pytest.mark.interpreted("counts calls of a method, which compiled code makes directly")
def test_template_is_found_at_once_among_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, compared = InferReader(), list[RequestTemplate]()
    requests = [data(named(number)) for number in range(200)]
    for sent in requests * 2:
        read(reader, sent)
    contents = RequestTemplate.contents

    def counted(template: RequestTemplate, message: bytes) -> Any:
        compared.append(template)
        return contents(template, message)

    monkeypatch.setattr(RequestTemplate, "contents", counted)
    templates = [read(reader, sent).template for sent in requests]
    assert len({*templates} - {None}) == 200
    assert compared == templates


def test_templates_that_differ_in_their_last_tensors_are_no_burden() -> None:
    """Their beginnings and lengths are equal; so many are compared, and the others are parsed."""
    reader = InferReader()
    for first in range(100):
        sent = alike(b"a", bytes(first), bytes(100 - first), bytes(100))
        assert all(same(read(reader, data(sent)), sent) for _ in range(3))
    assert 2 <= kept(reader) <= 3 * 8


def test_requests_of_more_templates_than_are_kept_take_them_by_and_by() -> None:
    reader = InferReader()
    early, late = ([data(named(k + n)) for k in range(256)] for n in (0, 5000))
    for sent in [*early, *early, *late]:
        read(reader, sent)
    assert read(reader, late[0]).template is None
    assert read(reader, early[1]).template is not None
    for sent in late * 20:
        read(reader, sent)
    assert read(reader, late[0]).template is not None


# -- in memory that models can map ----------------------------------------------------------------


def _arrived(reader: InferReader, message: pb.ModelInferRequest, known: int) -> InferMessage:
    """The message in the memory that the reader gives for it, when so many bytes have come."""
    data = message.SerializeToString()
    memory = reader.reserve(len(data), memoryview(data)[:known])
    assert memory is not None
    memory[:] = data
    return read(reader, memory)


def _plain(raw: list[bytes], datatype: str = "UINT8") -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="m", raw_input_contents=raw)
    for number, data in enumerate(raw):
        message.inputs.add(name=f"x{number}", datatype=datatype, shape=[len(data)])
    return message


def test_the_first_tensor_of_a_large_message_has_a_place_also_when_its_template_is_known() -> None:
    reader = InferReader()
    for _ in range(4):
        received = _arrived(reader, _plain([bytes(8 * LARGE)]), 200)
        (place,) = received.places
        assert place is not None
        assert place.offset % 64 == 0
        request = decode_request(received)
        assert request.inputs["x0"].shared is place
    assert received.template is not None


def test_requests_with_an_id_have_places_too() -> None:
    received = _arrived(InferReader(), request([bytes(8 * LARGE)]), 500)
    assert decode_request(received).inputs["x0"].shared is received.places[0] is not None


def test_tensors_that_lie_unevenly_have_none() -> None:
    received = _arrived(InferReader(), _plain([bytes(4 * LARGE), bytes(4 * LARGE)]), 200)
    assert [place is None for place in received.places] == [False, True]
    inputs = decode_request(received).inputs
    assert [tensor.shared is None for tensor in inputs.values()] == [False, True]


@pytest.mark.parametrize("known", [3, 20])
def test_short_beginning_is_enough(known: int) -> None:
    received = _arrived(InferReader(), _plain([b"\7" * 8 * LARGE]), known)
    assert bytes(decode_request(received).inputs["x0"].buffer) == b"\7" * 8 * LARGE


@given(st.binary(max_size=300))
def test_only_a_beginning_with_a_name_gets_memory(beginning: bytes) -> None:
    unnamed = InferReader().reserve(8 * LARGE, memoryview(b"\x12\x011"))
    assert unnamed is None
    assert InferReader().reserve(8 * LARGE, memoryview(b"\n\x01m" + beginning)) is not None
