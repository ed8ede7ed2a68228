"""HTTP/1.1, HTTP/2 and HPACK."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

from fuzz.door import NONE, Door, Read, on_one_loop


def _http1(_: Path) -> Read:
    from http1.fuzzing.attack import Attack
    from penstock.http1.limits import HttpLimits

    def read(data: bytes) -> None:
        attack = Attack(HttpLimits())
        attack.feed(data)
        attack.settle()
        attack.check()
        attack.end()
        attack.lose()

    return read


def _http2(_: Path) -> Read:
    from http2.fuzzing.judge import Attack
    from http2.fuzzing.services import Methods
    from penstock.http2.frames import Limits
    from penstock.rpc.native.routes import Routes
    from penstock.rpc.native.server_state import ServerState
    from penstock.settings import KeepaliveSettings

    methods = Methods()
    routes = Routes([methods.service()]).read

    async def attacked(data: bytes) -> None:
        state = ServerState(Limits(), KeepaliveSettings())
        attack = Attack(state, routes, methods.produced)
        attack.feed(data)
        await attack.settle()
        for _ in range(5):
            await asyncio.sleep(0)
        attack.check()
        attack.lose()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not state.tasks, "a handler of a closed connection still runs"

    return on_one_loop(attacked)


def _http2s() -> list[bytes]:
    from penstock.http2.hpack import encode

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return struct.pack(">HBBBI", 0, len(payload), kind, flags, stream) + payload

    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/fuzz.Fuzz/Chat"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        (b"grpc-timeout", b"5S"),
    ]
    settings = frame(4, 0, 0, struct.pack(">HI", 4, 70_000))
    call = frame(1, 4, 1, encode(fields)) + frame(0, 0, 1, b"\0\0\0\0\3abc") + frame(0, 1, 1, b"")
    others = frame(6, 0, 0, bytes(8)) + frame(8, 0, 0, b"\0\0\1\0") + frame(3, 0, 1, b"\0\0\0\x08")
    return [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + call + others]


def _hpack(_: Path) -> Read:
    from penstock.http2.hpack import Decoder

    decoder = Decoder(4096, 8192)

    def read(data: bytes) -> None:
        nonlocal decoder
        try:
            for part in data.split(b"\xff\xff\xff"):
                decoder.decode(part)
        finally:
            decoder = Decoder(4096, 8192)

    return read


DOORS = {
    "http1": Door(
        _http1,
        lambda: [
            b"POST /v2/x?a=b HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc",
            b"GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
            b"3;x=y\r\nabc\r\n0\r\n\r\n",
        ],
        NONE,
        (
            b"\r\n",
            b"\r\n\r\n",
            b": ",
            b"chunked",
            b"content-length",
            b"\0",
            b"expect: 100-continue",
        ),
        1000,
    ),
    "http2": Door(_http2, _http2s, NONE, (b"\0\0\0\4\1\0\0\0\0", b"\x82\x84"), 300),
    "hpack": Door(
        _hpack,
        lambda: [
            b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
            b"\x40\1a\1b\xbe",
        ],
        frozenset({"ProtocolError"}),
        (b"\x3f\xe1\x1f", b"\xff" * 5),
    ),
}
