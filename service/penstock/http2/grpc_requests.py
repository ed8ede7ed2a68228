"""What the fields of a request say to gRPC: path, timeout, encodings, metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.http2.compression import IDENTITY
from penstock.http2.grpc_metadata import Metadata, read_metadata, read_timeout
from penstock.http2.hpack import Field
from penstock.http2.request_headers import Request, read_request

_TYPE = b"application/grpc"


@dataclass(frozen=True)
class CallHead:
    """The beginning of a call. Shared by all calls whose header blocks are equal.

    `refusal` is the reason why this is a call that cannot be served; `http_status` is set when it
    is no gRPC at all. `metadata_fields` are all metadata, in order; of `metadata`, which are
    those that are text, the last of equal keys wins.
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
    """The head of a call; raises `MalformedError` for what is not even HTTP/2."""
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


def _no_grpc(request: Request, path: str, status: int) -> CallHead:
    return CallHead(
        path,
        content_length=request.content_length,
        http_status=status,
        head_only=request.method == b"HEAD",
    )


def _accepted(value: bytes) -> frozenset[bytes]:
    """The encodings of responses that the client can read."""
    return frozenset(name.strip() for name in value.split(b","))
