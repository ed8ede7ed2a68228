"""Where the fields of requests lie, and how many of them there may be."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from penstock.core.turns import finished
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.infer_layout import Layout, TooManyError, fields_of, varint

NAMES = b"\x0a\x01m" + b"\x1a\x017"


def layout(message: bytes) -> Layout:
    found: Layout = finished(Layout(memoryview(message)).read())
    return found


def steps(message: bytes) -> int:
    """The steps in which the layout of a message is found."""
    return 1 + sum(1 for _ in Layout(memoryview(message)).read())


def field(tag: int, value: bytes) -> bytes:
    return bytes((tag,)) + varint(len(value)) + value


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (b"\x22\x00", "parameters"),
        (b"\x2a\x00", "inputs"),
        (b"\x32\x00", "outputs"),
        (b"\x3a\x00", "raw input contents"),
    ],
)
def test_message_may_hold_4096_of_each(entry: bytes, kind: str) -> None:
    assert layout(entry * 4096).head is not None
    with pytest.raises(TooManyError) as refused:
        layout(NAMES + entry * 4097)
    assert refused.value.message == (
        f"request has 4097 {kind} or more, which exceeds the maximum allowed value of 4096"
    )
    assert refused.value.names == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("inside", [False, True])
def test_other_fields_are_counted_too(inside: bool) -> None:
    fields = b"\xa0\x06\x01" * (1 << 18)
    message = NAMES + (b"\x2a" + varint(len(fields)) + fields if inside else fields)
    with pytest.raises(TooManyError, match="request has more than 262144 fields"):
        layout(message)


def test_fields_are_found_in_steps_of_1024() -> None:
    assert steps(b"\xa0\x06\x01" * 1023) == 1
    assert steps(b"\xa0\x06\x01" * 10_000) == 10
    assert steps(field(0x2A, b"\xa0\x06\x01" * 10_000)) == 10


def test_head_is_bounded_and_contents_are_not_a_part_of_it() -> None:
    large = bytes(5 << 20)
    inputs = field(0x2A, field(0x2A, field(0x0A, large)))
    assert len(layout(field(0x3A, large) + inputs).head) < 20
    with pytest.raises(TooManyError, match="4194304 bytes besides the contents of tensors"):
        layout(field(0x3A, large) + field(0x1A, large))


def test_contents_may_be_in_so_many_pieces() -> None:
    piece = field(0x2A, b"\x0a\x01\x01")
    assert len(layout(field(0x2A, piece * 4097)).typed[0]) == 4097
    with pytest.raises(TooManyError, match="typed contents in more than 4096 pieces"):
        layout(field(0x2A, piece * 4098))


def test_contents_of_few_bytes_stay_in_the_head() -> None:
    few, many = (field(0x2A, field(0x2A, field(0x0A, bytes(n)))) for n in (62, 63))
    assert layout(few + many).typed.keys() == {1}
    head = pb.ModelInferRequest.FromString(layout(few + many).head)
    assert [len(one.contents.bool_contents) for one in head.inputs] == [62, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        b"\x02\x00",
        b"\x8a\x80\x80\x80\x80\x00\x00",
        b"\x8a\x80\x80\x80\x10\x00",
        b"\xa3\x06\xa4\x06",
    ],
    ids=["field 0", "tag of six bytes", "tag of 33 bits", "group"],
)
def test_wrong_tags_are_refused(wrong: bytes) -> None:
    with pytest.raises(DecodeError):
        list(fields_of(memoryview(wrong), 0, len(wrong)))


def test_last_name_counts() -> None:
    names = field(0x0A, b"a") * 1000 + field(0x0A, b"b")
    with pytest.raises(TooManyError) as refused:
        layout(names + b"\x2a\x00" * 4097)
    assert refused.value.names == field(0x0A, b"b")
