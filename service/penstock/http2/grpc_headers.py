"""gRPC header fields over HTTP/2: call headers, metadata, timeouts, response headers."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote_from_bytes

from penstock.http2.compression import ACCEPTED, IDENTITY
from penstock.http2.hpack import Field, encode
from penstock.http2.request_headers import HttpRequest, read_request

Metadata = tuple[tuple[str, str | bytes], ...]

_RESERVED = frozenset((b"te", b"content-type", b"content-length", b"host"))
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_KEY = re.compile(r"[0-9a-z_.\-]+")
_TEXT = re.compile(r"[\x20-\x7e]*")
# Characters of a status message that need no percent-encoding.
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


def read_metadata(fields: Iterable[Field]) -> Metadata:
    """The metadata of a call; reserved fields of gRPC are left out."""
    pairs: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name in _RESERVED or name.startswith(b"grpc-"):
            continue
        key = name.decode("ascii")
        if key.endswith("-bin"):
            # Values of equal keys may be joined by a comma.
            pairs.extend((key, _from_base64(part)) for part in value.split(b","))
        else:
            pairs.append((key, value.decode("latin-1")))
    return tuple(pairs)


def write_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> list[Field]:
    """Encode metadata as header fields; raises `ValueError` for keys or values not allowed."""
    fields: list[Field] = []
    for key, value in metadata:
        if not _KEY.fullmatch(key) or key.startswith("grpc-"):
            raise ValueError(f"metadata key {key!r} is not allowed")
        if key.endswith("-bin"):
            data = value.encode() if isinstance(value, str) else value
            fields.append((key.encode(), write_binary(data)))
        elif isinstance(value, str) and _TEXT.fullmatch(value):
            fields.append((key.encode(), value.strip().encode()))
        else:
            raise ValueError(f"metadata value of {key!r} is not printable ASCII text")
    return fields


def read_timeout(value: bytes) -> float:
    """Parse a `grpc-timeout` as seconds; raises `ValueError`."""
    found = _TIMEOUT.fullmatch(value)
    if found is None:
        raise ValueError("bad grpc-timeout")
    return int(found[1]) * _UNITS[found[2]]


def write_message(text: str) -> bytes:
    """Percent-encode a status message."""
    return quote_from_bytes(text.encode(errors="replace"), safe=_PLAIN).encode()


def write_binary(data: bytes) -> bytes:
    """Encode a binary metadata value in base64."""
    return b64encode(data).rstrip(b"=")


def _from_base64(value: bytes) -> bytes:
    try:
        return b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        raise ValueError("binary metadata is not in base64") from None


_TYPE = b"application/grpc"


@dataclass(frozen=True)
class CallHead:
    """The parsed headers of a call; shared by all calls with equal header blocks.

    `refusal` is the reason if the call cannot be served; `http_status` is set if it is not gRPC.
    `metadata_fields` are all metadata, in order; `metadata` are those with text values, where the
    last of equal keys wins. `timeout` is in seconds.
    """

    path: str
    metadata_fields: Metadata = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    encoding: bytes = IDENTITY
    accepted: frozenset[bytes] = frozenset()
    content_length: int | None = None
    http_status: int = 0
    head_only: bool = False
    refusal: str = ""


def read_call(fields: tuple[Field, ...] | None) -> CallHead:
    """Parse the headers of a call; raises `MalformedError` if they are not valid HTTP/2."""
    if fields is None:
        return CallHead("", refusal="metadata is larger than allowed")
    request = read_request(fields)
    path = request.path.decode("latin-1")
    named = dict(reversed(request.fields))
    kind = named.get(b"content-type", b"")
    if not kind.startswith(_TYPE) or kind[len(_TYPE) : len(_TYPE) + 1] not in (b"", b"+", b";"):
        return _no_grpc(request, path, 415)
    if request.method != b"POST":
        return _no_grpc(request, path, 405)
    try:
        timeout = named.get(b"grpc-timeout")
        metadata = read_metadata(request.fields)
        return CallHead(
            path,
            metadata,
            {key: value for key, value in metadata if isinstance(value, str)},
            None if timeout is None else read_timeout(timeout),
            named.get(b"grpc-encoding", IDENTITY),
            _accepted(named.get(b"grpc-accept-encoding", b"")),
            request.content_length,
        )
    except ValueError as error:
        return CallHead(path, content_length=request.content_length, refusal=str(error))


def _no_grpc(request: HttpRequest, path: str, status: int) -> CallHead:
    return CallHead(
        path,
        content_length=request.content_length,
        http_status=status,
        head_only=request.method == b"HEAD",
    )


def _accepted(value: bytes) -> frozenset[bytes]:
    """The response encodings that the client accepts."""
    return frozenset(name.strip() for name in value.split(b","))


_STATUS_200 = (b":status", b"200")
_RESPONSE_TYPE = (b"content-type", b"application/grpc")
ACCEPT = (b"grpc-accept-encoding", ACCEPTED)
"""The encodings that the server accepts, sent to a client that has used another."""

BEGIN = encode((_STATUS_200, _RESPONSE_TYPE))
"""The header block of a response without metadata."""
OK = encode(((b"grpc-status", b"0"),))
"""The trailers of a successful response without metadata."""

_TEXTS = {415: b"this is a gRPC server\n", 405: b"gRPC calls are POST requests\n"}


def begin(metadata: Iterable[Field] = (), encoding: bytes = b"") -> bytes:
    """Encode the header block of a response."""
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
    """Encode the trailers of a response; `only` if no headers were sent before."""
    fields: list[Field] = [_STATUS_200, _RESPONSE_TYPE] if only else []
    fields.append((b"grpc-status", b"%d" % code))
    if message:
        fields.append((b"grpc-message", write_message(message)))
    if details:
        fields.append((b"grpc-status-details-bin", write_binary(details)))
    return encode((*fields, *metadata))


def no_grpc(status: int) -> tuple[bytes, bytes]:
    """Header block and body of the response to a request that is not gRPC."""
    text = _TEXTS[status]
    fields = [(b":status", b"%d" % status), (b"content-type", b"text/plain")]
    return encode([*fields, (b"content-length", b"%d" % len(text))]), text
