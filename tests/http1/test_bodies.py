"""Bodies whose end the parser alone would not find, and targets that are more than a path."""

from __future__ import annotations

import pytest

from http1.fuzzing.attack import Attack, understood
from http1.fuzzing.valid_requests import Understood
from penstock.http1.limits import HttpLimits
from penstock.http1.requests import Body

_UPGRADE = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n"
_NEXT = b"GET /now/next HTTP/1.1\r\nhost: x\r\n\r\n"
_NEXT_UNDERSTOOD = Understood.of(b"GET", b"/now/next", b"")
_CHUNKS = b"transfer-encoding: chunked\r\n\r\n"


def _answered(*pieces: bytes) -> list[Understood | None]:
    """The requests that the service understood, of bytes that arrive in pieces."""
    attack = Attack(HttpLimits())
    for piece in pieces:
        attack.feed(piece)
    attack.settle()
    assert not attack.over
    attack.lose()
    return [understood(response) for response in attack.responses()]


def _post(path: bytes, fields: bytes, rest: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: x\r\n%b%b" % (path, fields, rest)


@pytest.mark.parametrize(
    ("rest", "body"),
    [
        (b"content-length: %d\r\n\r\n%b" % (len(_NEXT), _NEXT), _NEXT),
        (_CHUNKS + b"%x\r\n%b\r\n0\r\n\r\n" % (len(_NEXT), _NEXT), _NEXT),
        (_CHUNKS + b"0\r\n\r\n", b""),
        (b"content-length: 0\r\n\r\n", b""),
        (b"\r\n", b""),
    ],
)
@pytest.mark.parametrize("bytewise", [False, True])
def test_request_that_asks_for_an_upgrade_has_its_body(
    rest: bytes, body: bytes, bytewise: bool
) -> None:
    """Java's client asks with its first request; a body that is one is no request."""
    sent = _post(b"/now/1", _UPGRADE, rest) + _NEXT
    pieces = [sent[at : at + 1] for at in range(len(sent))] if bytewise else [sent]
    assert _answered(*pieces) == [Understood.of(b"POST", b"/now/1", body), _NEXT_UNDERSTOOD]


def test_large_body_whose_request_is_answered_before_its_end_is_passed_over() -> None:
    """Also where some of it went into its memory past the parser, while an earlier one waited."""
    first = _post(b"/later/1", b"", b"content-length: 0\r\n\r\n")
    body = _NEXT * 5000
    head = _post(b"/early/2", b"", b"content-length: %d\r\n\r\n" % len(body))
    at = 60_000
    assert _answered(first + head + body[:1], body[1:at], body[at:] + _NEXT) == [
        Understood.of(b"POST", b"/later/1", b""),
        Understood(b"POST", b"/early/2", -1, -1),
        _NEXT_UNDERSTOOD,
    ]


@pytest.mark.parametrize(
    ("version", "told"), [(b"1.1", b"HTTP/1.1 100 Continue\r\n\r\n"), (b"1.0", b"")]
)
def test_only_clients_that_know_it_are_told_to_continue(version: bytes, told: bytes) -> None:
    """RFC 9110, section 10.1.1: HTTP/1.0 has no such answer."""
    attack = Attack(HttpLimits())
    head = b"POST /now/1 HTTP/%b\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n"
    attack.feed(head % version)
    assert attack.sent_since(0) == told
    attack.lose()


@pytest.mark.parametrize("rest", [b"content-length: 2\r\n\r\na", _CHUNKS + b"1\r\na\r\n"])
def test_client_that_has_begun_its_body_is_not_told_to_continue(rest: bytes) -> None:
    attack = Attack(HttpLimits())
    attack.feed(_post(b"/now/1", b"expect: 100-continue\r\n", rest))
    assert attack.sent_since(0) == b""
    attack.lose()


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"http://x/now/1", b"/now/1"),
        (b"http://x/now/1?", b"/now/1"),
        (b"http://x/now/1?a=b", b"/now/1?a=b"),
        (b"http://x", b"/"),
        (b"http://x?a=b", b"/?a=b"),
    ],
)
def test_whole_uri_is_its_path_and_query(target: bytes, path: bytes) -> None:
    """Compiled code once took a query that is not there for a fault of its own."""
    assert _answered(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % target) == [
        Understood.of(b"GET", path, b"")
    ]


def test_fault_right_behind_a_request_that_asks_for_an_upgrade_is_refused() -> None:
    """The first of them ends in the bytes in which the second one is."""
    attack = Attack(HttpLimits())
    attack.feed(b"GET /now/1 HTTP/1.1\r\nhost: x\r\n" + _UPGRADE)
    attack.feed(b"\r\nGET /now/2#part HTTP/1.1\r\nhost: x\r\n\r\n")
    attack.settle()
    attack.lose()
    assert [response.status for response in attack.responses()] == [200, 400]


def test_large_body_is_copied_once_as_it_grows() -> None:
    """What has come when it is known to be large; then there is memory for all of it."""
    body = Body(64 << 20)
    first = body.memory()
    assert first is not None
    body.filled(len(first))
    rest = body.memory()
    assert rest is not None
    assert len(first) + len(rest) == 64 << 20
