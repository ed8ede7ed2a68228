"""Frames: whatever the bytes' way was, the same messages come out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.buffer import Buffer
from penstock.hosting.link.link import FrameReader, encode, joined

Sent = tuple[int, Any, list[bytes]]
Read = list[tuple[int, Any, bytes]]

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
headers = st.recursive(
    scalars,
    lambda inner: st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
messages = st.tuples(st.integers(0, 255), headers, st.lists(st.binary(max_size=50), max_size=3))


@given(st.lists(messages, max_size=5), st.data())
def test_any_split_of_the_bytes_gives_the_same_messages(sent: list[Sent], data: Any) -> None:
    stream = b"".join(part for message in sent for part in encode(*message))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(pieces) == as_read(sent)


@given(st.lists(messages, min_size=1, max_size=3))
def test_byte_by_byte_gives_the_same_messages(sent: list[Sent]) -> None:
    stream = b"".join(part for message in sent for part in encode(*message))
    assert read(stream[at : at + 1] for at in range(len(stream))) == as_read(sent)


def test_many_frames_come_out_of_one_read() -> None:
    sent: list[Sent] = [(1, number, [b"x"]) for number in range(1000)]
    stream = b"".join(part for message in sent for part in encode(*message))
    assert read([stream]) == as_read(sent)


def test_large_frame_is_put_together_once() -> None:
    """64 MiB in reads of 256 KiB: pieces are kept, not copied again and again."""
    payload = bytes(64 << 20)
    stream = b"".join(encode(3, "big", [payload]))
    pieces = [stream[at : at + (256 << 10)] for at in range(0, len(stream), 256 << 10)]
    ((kind, header, body),) = read(pieces)
    assert (kind, header, len(body)) == (3, "big", len(payload))


def test_payload_stays_while_somebody_looks_at_it() -> None:
    reader = FrameReader()
    (message,) = reader.feed(b"".join(encode(1, None, [b"first"])))
    list(reader.feed(b"".join(encode(1, None, [b"other"]))))
    assert bytes(message[2]) == b"first"


def test_payload_is_writable_when_the_bytes_are() -> None:
    (message,) = FrameReader().feed(bytearray(b"".join(encode(1, None, [b"first"]))))
    message[2][:1] = b"F"
    assert bytes(message[2]) == b"First"


def test_whatever_has_a_buffer_can_be_a_payload() -> None:
    parts: list[Buffer] = [b"a", bytearray(b"b"), memoryview(b"xcx")[1:2]]
    assert read([b"".join(encode(1, None, parts))]) == [(1, None, b"abc")]


def test_header_that_is_not_plain_is_refused() -> None:
    with pytest.raises(ValueError, match="unmarshallable"):
        encode(1, {"x": object()})


@given(st.lists(st.integers(0, 70_000), max_size=12))
def test_joining_keeps_the_bytes_and_copies_no_large_part(sizes: list[int]) -> None:
    parts: list[Buffer] = [bytes([number]) * size for number, size in enumerate(sizes)]
    result = joined(parts)
    assert b"".join(result) == b"".join(parts)
    large = [id(part) for part in parts if len(part) > 64_000]
    assert [id(part) for part in result if id(part) in large] == large


def test_small_neighbours_become_one_part() -> None:
    assert joined([b"a", b"b", bytes(40_000), b"c", b"d"]) == [b"ab", bytes(40_000), b"cd"]


def read(pieces: Iterable[bytes]) -> Read:
    reader = FrameReader()
    found = (message for piece in pieces for message in reader.feed(piece))
    return [(kind, header, bytes(payload)) for kind, header, payload in found]


def as_read(sent: list[Sent]) -> Read:
    return [(kind, header, b"".join(payload)) for kind, header, payload in sent]
