"""Typed contents that are decoded in steps: what they may hold, and who counts it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.body_quota import BodyQuota
from penstock.core.errors import ExhaustedError, InvalidRequestError
from penstock.core.turns import Sliced, finished
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.infer_layout import varint
from penstock.rpc.messages import InferMessage, InferReader, _Parsing, decode_request
from penstock.rpc.typed_contents import ContentLimits
from rpc.fuzzing.judge import by_protobuf, understood

MIB = 1 << 20


def request(field: str, datatype: str, values: Any, inputs: int = 1) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="m", id="7")
    for number in range(inputs):
        tensor = message.inputs.add(name=f"x{number}", datatype=datatype, shape=[len(values)])
        getattr(tensor.contents, field).extend(values)
    return message


def block(number: int, content: bytes) -> bytes:
    """A field that holds a text, or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def wired(datatype: str, count: int, contents: bytes) -> bytes:
    """A request with one input, whose typed contents are these bytes."""
    shape = block(3, varint(count))
    tensor = block(1, b"x") + block(2, datatype.encode()) + shape + block(5, contents)
    return block(1, b"m") + block(5, tensor)


def parsed(
    message: pb.ModelInferRequest | bytes,
    limits: ContentLimits | None = None,
    quota: BodyQuota | None = None,
) -> InferMessage:
    data = message if isinstance(message, bytes) else message.SerializeToString()
    found: InferMessage = finished(_Parsing(data, limits or ContentLimits(), None, quota).run())
    return found


def refusal(message: InferMessage) -> str:
    with pytest.raises(InvalidRequestError) as refused:
        decode_request(message)
    return refused.value.message


def numbers(least: int, most: int) -> Any:
    return st.lists(st.integers(least, most), max_size=30)


LISTS = st.one_of(
    st.tuples(st.just("bool_contents"), st.just("BOOL"), st.lists(st.booleans(), max_size=30)),
    st.tuples(
        st.just("int_contents"),
        st.sampled_from(["INT8", "INT16", "INT32"]),
        numbers(-(1 << 31), (1 << 31) - 1),
    ),
    st.tuples(st.just("int64_contents"), st.just("INT64"), numbers(-(1 << 63), (1 << 63) - 1)),
    st.tuples(
        st.just("uint_contents"),
        st.sampled_from(["UINT8", "UINT16", "UINT32"]),
        numbers(0, (1 << 32) - 1),
    ),
    st.tuples(st.just("uint64_contents"), st.just("UINT64"), numbers(0, (1 << 64) - 1)),
    st.tuples(
        st.just("fp32_contents"), st.just("FP32"), st.lists(st.floats(width=32), max_size=30)
    ),
    st.tuples(st.just("fp64_contents"), st.just("FP64"), st.lists(st.floats(), max_size=30)),
    st.tuples(
        st.just("bytes_contents"), st.just("BYTES"), st.lists(st.binary(max_size=40), max_size=30)
    ),
)


@given(LISTS, st.sampled_from([1, 700, 9000]), st.integers(1, 3))
def test_contents_of_any_size_are_what_protobuf_says(
    contents: tuple[str, str, list[Any]], times: int, inputs: int
) -> None:
    field, datatype, values = contents
    message = request(field, datatype, values * times, inputs)
    assert understood(parsed(message)) == understood(by_protobuf(message.SerializeToString()))


def test_large_contents_take_many_steps() -> None:
    message = request("int64_contents", "INT64", [-1] * 100_000).SerializeToString()
    rest = InferReader().read(message)
    assert isinstance(rest, Sliced)


def test_contents_of_all_inputs_together_are_bounded() -> None:
    limits = ContentLimits(size=100_000)
    assert refusal(parsed(request("uint64_contents", "UINT64", [1] * 9000, 2), limits)) == (
        "input tensor 'x1' for model 'm' exceeds the 100000 bytes of typed contents that a request"
        " may have, use raw_input_contents for it"
    )
    fits = decode_request(parsed(request("uint64_contents", "UINT64", [1] * 9000), limits))
    assert fits.inputs["x0"].nbytes == 72_000


def test_contents_are_bounded_as_they_are_sent_too() -> None:
    message = request("int64_contents", "INT64", [-1] * 20_000)  # ten bytes each
    assert "exceeds the 180000 bytes" in refusal(parsed(message, ContentLimits(size=180_000)))


@pytest.mark.parametrize("size", [0, 1, 127, 128, 300, 16_383, 16_384, 70_000])
def test_texts_of_any_length_lie_beside_each_other(size: int) -> None:
    texts = [b"a" * size, b"", b"b" * size, b"c"] * 100
    data = request("bytes_contents", "BYTES", texts).SerializeToString()
    assert understood(parsed(data)) == understood(by_protobuf(data))


def test_texts_lie_between_fields_that_are_unknown() -> None:
    unknown = varint(99 << 3) + b"\1"
    contents = (block(8, b"a") + unknown + varint(8 << 3) + b"\1" + block(8, b"b" * 200)) * 1000
    data = wired("BYTES", 2000, contents)
    assert understood(parsed(data)) == understood(by_protobuf(data))


@pytest.mark.parametrize("unknown", [b"\x78\1", b"\x40\1"], ids=["number", "kind"])
def test_unknown_fields_of_contents_are_few(unknown: bytes) -> None:
    contents = unknown * ((1 << 16) + 1)
    assert "has more than 65536 unknown fields in its contents, use raw_input_contents" in refusal(
        parsed(wired("BYTES", 1, contents))
    )


def test_numbers_that_are_not_packed_are_few() -> None:
    single = b"\x10\x01" * 65_537
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="INT32", shape=[65_537])
    data = tensor.SerializeToString() + b"\x2a" + varint(len(single)) + single
    assert refusal(parsed(b"\x0a\x01m\x2a" + varint(len(data)) + data)) == (
        "input tensor 'x' for model 'm' has more than 65536 numbers that are not packed, use"
        " raw_input_contents for it"
    )


@pytest.mark.parametrize("typed", [True, False])
def test_elements_of_bytes_are_bounded(typed: bool) -> None:
    message = request("bytes_contents", "BYTES", [b"ab"] * 10_000)
    if not typed:
        message.inputs[0].ClearField("contents")
        message.raw_input_contents.append(b"\2\0\0\0ab" * 10_000)
    assert refusal(parsed(message, ContentLimits(elements=9999))) == (
        "input tensor 'x0' for model 'm' has more than 9999 elements of BYTES. Use"
        " --max-bytes-elements to increase the limit."
    )
    count = decode_request(parsed(message, ContentLimits(elements=10_000))).inputs["x0"].count
    assert count == 10_000


@pytest.mark.parametrize("size", [1, 64 << 10])
def test_shape_of_many_dimensions_is_not_multiplied(size: int) -> None:
    """The product of these would take half an hour."""
    message = pb.ModelInferRequest(model_name="m", raw_input_contents=[bytes(size)])
    message.inputs.add(name="x", datatype="BYTES", shape=[1 << 62] * 400_000)
    data = message.SerializeToString()
    assert "has 400000 dimensions" in refusal(parsed(data))
    assert isinstance(InferReader().read(data), Sliced if size > 1 else InferMessage)


def test_what_contents_are_decoded_to_is_counted_until_it_is_gone() -> None:
    quota = BodyQuota(MIB)
    message = parsed(request("uint64_contents", "UINT64", [1] * 9000), quota=quota)
    assert quota.used == 72_000
    tensor: Any = decode_request(message).inputs["x0"].numpy()
    del message
    assert quota.used == 72_000
    del tensor
    assert quota.used == 0


def test_contents_are_refused_where_memory_is_used_up() -> None:
    quota, used = BodyQuota(1), np.empty(8, np.uint8).data
    quota.open(used, 40 << 20)
    message = parsed(request("uint64_contents", "UINT64", [1] * 9000), quota=quota)
    with pytest.raises(ExhaustedError, match="memory for requests is used up"):
        decode_request(message)
    assert quota.used == 40 << 20


def test_decoding_that_is_given_up_is_counted_no_more() -> None:
    quota = BodyQuota(MIB)
    data = request("uint64_contents", "UINT64", [1] * 200_000).SerializeToString()
    steps = _Parsing(data, ContentLimits(), None, quota).run()
    for _ in range(3):
        next(steps)
    assert quota.used > 0
    steps.close()
    assert quota.used == 0
