"""Hostile rows for every route of every HTTP port: each kind of request for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from loadtest.hostile.http_line import HttpLine, HttpSending
from loadtest.hostile.line import CLOSED
from loadtest.hostile.routes import Place, places
from loadtest.hostile.row import (
    GONE,
    HTTP_ANSWERED,
    HTTP_REFUSED,
    MIB,
    MOST_UNPACKED,
    Lines,
    Ports,
    Row,
    Sizes,
)
from loadtest.hostile.wire_bytes import filled, members, squeezed

_PLAIN = 8_000_000
_UNPACKED = 60_000_000
_MANY = 50  # connections
_GZIP = (("Content-Encoding", "gzip"),)
_CHUNKED = (("Transfer-Encoding", "chunked"),)

Make = Callable[[Sizes], HttpSending]


def send(place: Place, sending: HttpSending) -> Lines:
    """The attack that sends this to a place."""

    def connect(ports: Ports) -> list[HttpLine]:
        return [
            HttpLine(ports[place.port], place.method, place.path, sending, place.headers)
            for _ in range(sending.connections)
        ]

    size = len(sending.body) + min(sending.unpacked, MOST_UNPACKED)
    return Lines(size * sending.connections, connect)


def packed(body: bytes) -> HttpSending:
    """A body by gzip."""
    return HttpSending(squeezed(body), _GZIP, unpacked=len(body))


def listed(item: bytes, size: int, name: bytes = b"a") -> bytes:
    """A JSON object with a list of the same, about so many bytes long."""
    return b'{"%b":[%b]}' % (name, filled(item + b",", size)[:-1])


def _large(sizes: Sizes) -> HttpSending:
    return HttpSending(b'{"a":"%b"}' % bytes(b"x" * sizes.of(_PLAIN)))


def _no_json(sizes: Sizes) -> HttpSending:
    return HttpSending(bytes(sizes.of(_PLAIN)))


def _numbers(sizes: Sizes) -> HttpSending:
    return HttpSending(listed(b"1", sizes.of(_PLAIN)))


def _objects(sizes: Sizes) -> HttpSending:
    return HttpSending(listed(b"{}", sizes.of(_PLAIN)))


def _deep(sizes: Sizes) -> HttpSending:
    return HttpSending(b"[" * sizes.of(_PLAIN))


def _deep_objects(sizes: Sizes) -> HttpSending:
    return HttpSending(filled(b'{"a":', sizes.of(_PLAIN)))


def _keys(sizes: Sizes) -> HttpSending:
    count = sizes.of(_PLAIN) // 16
    return HttpSending(b"{%b}" % b",".join(b'"k%09d":1' % n for n in range(count)))


def _doubled_keys(sizes: Sizes) -> HttpSending:
    return HttpSending(b"{%b}" % filled(b'"model":"simple",', sizes.of(_PLAIN))[:-1])


def _escaped_keys(sizes: Sizes) -> HttpSending:
    text = b'"mod\\u0065l":"simple","prompt":"%b"' % (b"x" * sizes.of(_PLAIN))
    return HttpSending(b"{%b}" % text)


def _digits(sizes: Sizes) -> HttpSending:
    """One number that is very long."""
    return HttpSending(b'{"a":%b}' % (b"9" * sizes.of(_PLAIN)))


def _bomb(sizes: Sizes) -> HttpSending:
    return packed(listed(b"{}", sizes.of(_UNPACKED)))


def _members(sizes: Sizes) -> HttpSending:
    return HttpSending(members(sizes.of(100_000)), _GZIP)


def _garbage(sizes: Sizes) -> HttpSending:
    return HttpSending(b"\x1f\x8b" + bytes(sizes.of(MIB)), _GZIP)


def _slow(_: Sizes) -> HttpSending:
    return HttpSending(b'{"inputs":[          ', length=1000, pause=0.02, patience=0.2)


def _announced(_: Sizes) -> HttpSending:
    return HttpSending(b"{", length=(1 << 62), patience=0.3)


def _announced_binary(_: Sizes) -> HttpSending:
    headers = (("Inference-Header-Content-Length", "10"),)
    return HttpSending(bytes(100), headers, length=(2 << 30) - 1, patience=0.3, connections=_MANY)


def _chunks(sizes: Sizes) -> HttpSending:
    body = b"1\r\n[\r\n" * sizes.of(200_000) + b"0\r\n\r\n"
    return HttpSending(body, _CHUNKED)


def _many(sizes: Sizes) -> HttpSending:
    return HttpSending(listed(b"1", sizes.of(_PLAIN) // _MANY), connections=_MANY)


def _header(_: Sizes) -> HttpSending:
    return HttpSending(b"{}", (("X-Long", "x" * MIB),))


def _headers(_: Sizes) -> HttpSending:
    return HttpSending(b"{}", tuple((f"X-{n}", "x") for n in range(20_000)))


def _url(_: Sizes) -> HttpSending:
    return HttpSending(b"{}", query="?" + "x" * MIB)


def _truncated(sizes: Sizes) -> HttpSending:
    size = sizes.of(_PLAIN)
    return HttpSending(bytes(size // 2), length=size, patience=0.1)


_LEAVING = HTTP_ANSWERED | GONE
_CUT = HTTP_REFUSED | {CLOSED, "200"}
KINDS: dict[str, tuple[Make, frozenset[str]]] = {
    "large body": (_large, _CUT),
    "no JSON": (_no_json, _CUT),
    "many numbers": (_numbers, _CUT),
    "many objects": (_objects, _CUT),
    "deep lists": (_deep, _CUT),
    "deep objects": (_deep_objects, _CUT),
    "many keys": (_keys, _CUT),
    "doubled keys": (_doubled_keys, _CUT),
    "escaped key": (_escaped_keys, _CUT),
    "long number": (_digits, _CUT),
    "gzip bomb": (_bomb, _CUT),
    "many members of gzip": (_members, _CUT),
    "compressed garbage": (_garbage, _CUT),
    "slow body": (_slow, _LEAVING),
    "4 EiB announced": (_announced, _LEAVING),
    "2 GiB announced by many": (_announced_binary, _LEAVING),
    "chunks of a byte": (_chunks, _CUT),
    "many at once": (_many, _CUT),
    "long header": (_header, _CUT),
    "many headers": (_headers, _CUT),
    "long URL": (_url, _CUT),
    "truncated": (_truncated, _LEAVING),
}
"""Requests that are sent to each route, and how they may end."""


DECODED = {"many numbers": 40.0, "many keys": 64.0, "gzip bomb": 32.0}
"""MiB that are documented for what is decoded of a body, beside its bytes (docs/http.md)."""


def _prepare(place: Place, make: Make, sizes: Sizes) -> Lines:
    return send(place, make(sizes))


def route_rows() -> Iterator[Row]:
    """Every kind for every route."""
    for place in places():
        for kind, (make, expected) in KINDS.items():
            prepare, decoded = partial(_prepare, place, make), DECODED.get(kind, 0.0)
            yield Row(f"{place.label}  {kind}", prepare, expected, documented=decoded)
