"""Header compression against the `hpack` library as the other side."""

from __future__ import annotations

import itertools
from contextlib import suppress

import hpack
import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given
from hypothesis import strategies as st

from penstock.http2.frames import ErrorCode, ProtocolError
from penstock.http2.hpack import Decoder, Field, HeaderCache, decode_huffman, encode

NAMES = st.sampled_from([b":path", b"content-type", b"x-a", b"x-b", b"te", b"user-agent"])
FIELDS = st.lists(st.tuples(NAMES, st.binary(max_size=60)), max_size=8)


def decoder(max_list_size: int = 1 << 16) -> Decoder:
    return Decoder(4096, max_list_size)


@given(st.binary(max_size=300))
def test_huffman_code_is_read_as_it_was_written(data: bytes) -> None:
    encoder = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)
    assert decode_huffman(encoder.encode(data)) == data


@pytest.mark.parametrize("code", [b"\xff\xff\xff\xff", b"\x00", b"\x1f\xff\xff", b"\xff"])
def test_huffman_code_with_a_wrong_end_is_refused(code: bytes) -> None:
    """An end symbol, a code cut short, padding of more than seven bits or with zeros."""
    with pytest.raises(ProtocolError):
        decode_huffman(code)


@given(st.lists(FIELDS, max_size=12), st.booleans())
def test_blocks_of_another_encoder_are_read_in_order(lists: list[list[Field]], code: bool) -> None:
    theirs, ours = hpack.Encoder(), decoder()
    for fields in lists:
        assert ours.decode(theirs.encode(fields, huffman=code)) == tuple(fields)


@given(st.lists(st.tuples(FIELDS, st.sampled_from([None, 0, 64, 200, 4096])), max_size=12))
def test_dynamic_table_may_change_its_size(lists: list[tuple[list[Field], int | None]]) -> None:
    theirs, ours = hpack.Encoder(), decoder()
    for fields, size in lists:
        if size is not None:
            theirs.header_table_size = size
        assert ours.decode(theirs.encode(fields)) == tuple(fields)


@given(st.lists(FIELDS, max_size=30))
def test_cached_blocks_are_those_of_the_present_table(lists: list[list[Field]]) -> None:
    """A cached block never differs from a decoded one."""
    theirs, plain = hpack.Encoder(), decoder()
    blocks = HeaderCache(decoder(), lambda fields: ("read", fields))
    for fields in [fields for fields in lists for _ in range(2)]:
        block = theirs.encode(fields)
        assert blocks.decode(block) == ("read", plain.decode(block))


def test_equal_block_is_read_once_while_the_table_stays_the_same() -> None:
    count = itertools.count(1)
    blocks = HeaderCache(decoder(), lambda _: next(count))
    block = encode([(b"x-a", b"1")])
    assert [blocks.decode(block) for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("change", [b"\x40\x01a\x01b", b"\x20\x3f\xe1\x1f", b"\x3f\xe1\x1f"])
def test_any_change_of_the_table_clears_the_cache(change: bytes) -> None:
    """An insertion; a table that loses its entries; an update that ends at the same size."""
    count = itertools.count(1)
    blocks = HeaderCache(decoder(), lambda _: next(count))
    block = encode([(b"x-a", b"1")])
    blocks.decode(block)
    blocks.decode(change)
    assert blocks.decode(block) == 3


def test_index_that_an_update_has_emptied_is_refused() -> None:
    blocks = HeaderCache(decoder(), lambda fields: (fields,))
    blocks.decode(b"\x40\x01a\x01b")
    assert blocks.decode(b"\xbe") == (((b"a", b"b"),),)
    blocks.decode(b"\x20\x3f\xe1\x1f")
    with pytest.raises(ProtocolError):
        blocks.decode(b"\xbe")


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",
        b"\xff\x80\x80\x80\x80\x80\x80",
        b"\xff\xff\xff\xff\xff\x7f",
        b"\x40",
        b"\x00\x05ab",
        b"\x00\x7f\xff\xff\xff\xff\x0f",
        b"\x3f\xe2\x1f",
        b"\x82\x20",
        b"\xbe",
    ],
)
def test_broken_block_is_a_compression_error(block: bytes) -> None:
    with pytest.raises(ProtocolError) as broken:
        decoder().decode(block)
    assert broken.value.code is ErrorCode.COMPRESSION_ERROR


@given(st.binary(max_size=200))
def test_any_bytes_are_fields_or_an_error(block: bytes) -> None:
    with suppress(ProtocolError):
        decoder().decode(block)


def test_small_block_cannot_unpack_to_a_list_larger_than_allowed() -> None:
    """Indices of one byte each name a field of 4,000: nothing of it is kept."""
    ours = decoder(max_list_size=16_384)
    value = b"x" * 4000
    assert ours.decode(encode([]) + b"\x40\x01a\x7f\xa1\x1e" + value) is not None
    assert ours.decode(b"\xbe" * 10_000) is None


@given(FIELDS)
def test_our_blocks_are_read_by_another_decoder(fields: list[Field]) -> None:
    assert hpack.Decoder().decode(encode(fields), raw=True) == fields
