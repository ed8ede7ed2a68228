"""Calls of the fuzzer's methods, with the expected responses."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from http2.fuzzing.services import NAME
from penstock.http2.grpc import PREFIX
from penstock.protocol import grpc_service_pb2 as pb

Field = tuple[bytes, bytes]

_PACK: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"": bytes,
}
_NAMES = (b"x-a", b"x-b-bin", b"x-request", b"x-long")


@dataclass(slots=True)
class Call:
    """`left` is what is still to be sent. `messages` and `status` are what has to come back."""

    fields: list[Field]
    left: bytes = b""
    messages: list[bytes] = field(default_factory=list)
    metadata: list[Field] = field(default_factory=list)
    status: bytes = b"0"
    ended: bool = False


def make(chance: random.Random) -> Call:
    """A call of any method."""
    method = chance.choice(
        ("Echo", "Echo", "Later", "Chat", "Chat", "Flood", "Infer", "Fail", "No")
    )
    encoding = chance.choice((b"", b"", b"", b"gzip", b"deflate"))
    metadata = _metadata(chance)
    fields = [*_head(method, encoding), *metadata]
    if method == "No":
        return Call(fields, _framed(_message(chance), encoding), status=b"12")
    if method == "Flood":
        return Call(fields, _framed(b"", encoding), [bytes(4000)] * 40)
    if method == "Fail":
        return Call(fields, _framed(b"", encoding), status=b"10")
    if method == "Chat":
        sent = [_message(chance) for _ in range(chance.randrange(5))]
        return Call(fields, b"".join(_framed(part, encoding) for part in sent), sent)
    if method == "Infer":
        return _infer(chance, fields, encoding)
    return _unary(chance, fields, encoding, metadata if method == "Echo" else [])


def _unary(chance: random.Random, fields: list[Field], encoding: bytes, kept: list[Field]) -> Call:
    message = _message(chance)
    left = _framed(message, encoding)
    kind = chance.random()
    if kind < 0.05:
        return Call(fields, 2 * left, status=b"13")
    if kind < 0.1:
        return Call(fields, PREFIX.pack(0, 1 << 20) + bytes(9000), status=b"8")
    if kind < 0.3:
        fields.append((b"content-length", b"%d" % len(left)))
    return Call(fields, left, [message], kept)


def _infer(chance: random.Random, fields: list[Field], encoding: bytes) -> Call:
    raw = [_message(chance) for _ in range(2)]
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=raw)
    answer = pb.ModelInferResponse(model_name=str(sum(map(len, raw))), raw_output_contents=raw)
    left = _framed(request.SerializeToString(), encoding)
    return Call(fields, left, [answer.SerializeToString()])


def _head(method: str, encoding: bytes) -> list[Field]:
    head = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", f"/{NAME}/{method}".encode())]
    head += [(b":authority", b"here"), (b"content-type", b"application/grpc"), (b"te", b"trailers")]
    return [*head, (b"grpc-encoding", encoding)] if encoding else head


def _metadata(chance: random.Random) -> list[Field]:
    """Some that are always the same, and some that are never."""
    found = []
    for _ in range(chance.randrange(4)):
        name = chance.choice(_NAMES)
        value = b"%d" % chance.choice((1, chance.randrange(10), chance.randrange(1 << 30)))
        if name == b"x-b-bin":
            value = b"AAEC"
        found.append((name, value * chance.choice((1, 1, 20)) if name == b"x-long" else value))
    return found


def _message(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((0, 1, 4, 5, 6, 100, 3000, 12_000)))


def _framed(message: bytes, encoding: bytes) -> bytes:
    packed = _PACK[encoding](message)
    return PREFIX.pack(bool(encoding), len(packed)) + packed
