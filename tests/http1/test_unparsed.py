"""Slices of what was received and is not parsed: they end with heads and bodies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.http1.connection import Unparsed

_GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
_POST = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n"


@given(st.lists(st.binary(max_size=50)), st.lists(st.booleans()))
def test_slices_are_what_was_received(pieces: list[bytes], bodies: list[bool]) -> None:
    unparsed, taken = Unparsed(), b""
    for number, piece in enumerate(pieces):
        unparsed.add(piece)
        if unparsed:
            in_body = number < len(bodies) and bodies[number]
            taken += unparsed.take(unparsed.next_size(in_body=in_body))
    while unparsed:
        taken += unparsed.take(unparsed.next_size(in_body=False))
    assert taken == b"".join(pieces)


def test_slices_end_with_heads_and_bodies() -> None:
    unparsed, slices = Unparsed(), []
    unparsed.add(_GET + _POST + b"\r\n\r\n!" + _GET)
    for length in (0, 5, None):
        slices.append(unparsed.take(unparsed.next_size(in_body=False)))
        unparsed.body_begins(length)
        if length:
            slices.append(unparsed.take(unparsed.next_size(in_body=True)))
    assert slices == [_GET, _POST, b"\r\n\r\n!", _GET]
    assert not unparsed
