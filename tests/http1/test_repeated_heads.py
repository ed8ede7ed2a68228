"""Heads that come again: the requests are those that a parser finds, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from http1.fuzzing.attack import Attack, understood
from http1.fuzzing.valid_requests import Understood
from penstock.http1.limits import HttpLimits
from penstock.http1.requests import HeadCache, read_head

_BODIES = st.sampled_from([b"", b"a", b"b", b"ab\r\n\r\n", b"POST /now/x HTTP/1.1\r\n\r\n"])
_FIELDS = st.sampled_from([b"", b"x-a: b\r\n", b"connection: upgrade\r\nupgrade: h2c\r\n"])
_PATHS = st.sampled_from([b"/now/1", b"/later/2", b"/early/3"])


@st.composite
def _requests(draw: st.DrawFn) -> bytes:
    path, fields, body = draw(_PATHS), draw(_FIELDS), draw(_BODIES)
    if draw(st.integers(0, 4)) == 0:
        framing, body = (
            b"transfer-encoding: chunked\r\n",
            b"%x\r\n%b\r\n0\r\n\r\n" % (9, b"123456789"),
        )
    else:
        framing = b"content-length: %d\r\n" % len(body)
    return b"POST %b HTTP/1.1\r\nhost: x\r\n%b%b\r\n%b" % (path, fields, framing, body)


def _answered(pieces: list[bytes]) -> list[Understood | None]:
    """The requests that the service understood, of bytes that arrive in pieces."""
    attack = Attack(HttpLimits())
    for piece in pieces:
        attack.feed(piece)
        attack.settle()
    attack.check()
    attack.lose()
    return [understood(response) for response in attack.responses()]


@pytest.mark.slow
@given(st.lists(_requests(), min_size=1, max_size=8), st.data())
def test_requests_in_any_pieces_are_those_that_come_byte_by_byte(
    requests: list[bytes], data: st.DataObject
) -> None:
    sent = b"".join(requests * 2)
    ends = [sum(map(len, (requests * 2)[:n])) for n in range(1, 2 * len(requests) + 1)]
    more = data.draw(st.lists(st.integers(1, len(sent)), max_size=3))
    cuts = sorted({*ends, *more} - set(data.draw(st.lists(st.sampled_from(ends), max_size=3))))
    pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    one_by_one = [sent[at : at + 1] for at in range(len(sent))]
    assert _answered(pieces) == _answered(one_by_one)


def _post(fields: bytes = b"", ending: bytes = b"\r\n", size: int = 2) -> bytes:
    lines = [b"POST /now/1 HTTP/1.1", b"host: x", b"content-length: %d" % size]
    return ending.join([*lines, *fields.split(b"\r\n")[:-1], b"", b""])


def test_only_the_body_differs() -> None:
    pieces = [_post() + body for body in (b"ab", b"cd", b"ef")]
    assert _answered(pieces) == [
        Understood.of(b"POST", b"/now/1", body) for body in (b"ab", b"cd", b"ef")
    ]


@pytest.mark.parametrize("fields", [b"connection: close\r\n", b"expect: 100-continue\r\n"])
def test_requests_that_ask_for_more_are_not_cached(fields: bytes) -> None:
    parts = [(b"host", b"x"), (b"content-length", b"2")]
    parts += [tuple(fields[:-2].split(b": "))]  # type: ignore[list-item]
    head = read_head(b"POST", b"/now/1", "1.1", parts, keep_alive=b"close" not in fields)
    heads = HeadCache()
    heads.add(_post(fields), head)
    assert heads.find(_post(fields) + b"ab") is None


def test_a_head_is_found_again_with_its_body_alone() -> None:
    heads, data = HeadCache(), _post()
    heads.add(data, read_head(b"POST", b"/", "1.1", [(b"content-length", b"2")], keep_alive=True))
    for body in (b"", b"a", b"abc"):
        assert heads.find(data + body) is None
    found = heads.find(data + b"ab")
    assert found is not None
    assert found[1] == len(data)
    found[0].keep_alive = False  # that of this exchange alone
    again = heads.find(data + b"ab")
    assert again is not None
    assert again[0].keep_alive


def test_heads_are_forgotten_when_they_are_many() -> None:
    heads = HeadCache()
    for number in range(1000):
        fields = [(b"content-length", b"2"), (b"x-n", b"%d" % number)]
        data = _post(b"x-n: %d\r\n" % number)
        heads.add(data, read_head(b"POST", b"/", "1.1", fields, keep_alive=True))
        assert heads.find(data + b"ab") is not None
    assert heads.find(_post(b"x-n: 1\r\n") + b"ab") is None


@pytest.mark.parametrize("before", [b"", b"GET /now/0 HTTP/1.1\nhost: x\n\n", b"\r\n", b"\n"])
def test_nothing_before_a_head_is_taken_for_it(before: bytes) -> None:
    pieces = [before + _post() + b"ab"] * 3
    assert _answered(pieces) == _answered([bytes([byte]) for byte in b"".join(pieces)])
