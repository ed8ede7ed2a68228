"""Header blocks of gRPC responses. The usual ones are made beforehand."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.http2.compression import ACCEPTED
from penstock.http2.grpc_metadata import write_binary, write_message
from penstock.http2.header_encoding import encode
from penstock.http2.hpack import Field

_STATUS_200 = (b":status", b"200")
_RESPONSE_TYPE = (b"content-type", b"application/grpc")
ACCEPT = (b"grpc-accept-encoding", ACCEPTED)
"""For who has used another."""

BEGIN = encode((_STATUS_200, _RESPONSE_TYPE))
"""What a response without metadata begins with."""
OK = encode(((b"grpc-status", b"0"),))
"""What a response without metadata ends with if all is well."""

_TEXTS = {415: b"this is a gRPC server\n", 405: b"gRPC calls are POST requests\n"}


def begin(metadata: Iterable[Field] = (), encoding: bytes = b"") -> bytes:
    """What a response begins with."""
    extra = [(b"grpc-encoding", encoding)] if encoding else []
    return encode((_STATUS_200, _RESPONSE_TYPE, *extra, *metadata))


def end(
    code: int,
    message: str = "",
    details: bytes = b"",
    metadata: Iterable[Field] = (),
    *,
    only: bool = False,
) -> bytes:
    """What a response ends with; `only` if nothing of it was sent before."""
    fields: list[Field] = [_STATUS_200, _RESPONSE_TYPE] if only else []
    fields.append((b"grpc-status", b"%d" % code))
    if message:
        fields.append((b"grpc-message", write_message(message)))
    if details:
        fields.append((b"grpc-status-details-bin", write_binary(details)))
    return encode((*fields, *metadata))


def no_grpc(status: int) -> tuple[bytes, bytes]:
    """Fields and body of the answer to what is not gRPC."""
    text = _TEXTS[status]
    fields = [(b":status", b"%d" % status), (b"content-type", b"text/plain")]
    return encode([*fields, (b"content-length", b"%d" % len(text))]), text
