"""Metadata of gRPC calls as HTTP/2 fields: binary values, status messages, timeouts."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from urllib.parse import quote_from_bytes

from penstock.http2.hpack import Field

Metadata = tuple[tuple[str, str | bytes], ...]

_RESERVED = frozenset((b"te", b"content-type", b"content-length", b"host"))
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_KEY = re.compile(r"[0-9a-z_.\-]+")
_TEXT = re.compile(r"[\x20-\x7e]*")
# What may stand in a status message as it is: printable ASCII but the percent sign.
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


def read_metadata(fields: Iterable[Field]) -> Metadata:
    """What a client sent along; fields that are gRPC's own are left out."""
    pairs: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name in _RESERVED or name.startswith(b"grpc-"):
            continue
        key = name.decode("ascii")
        if key.endswith("-bin"):
            # Values of equal keys may come joined by a comma.
            pairs.extend((key, _from_base64(part)) for part in value.split(b","))
        else:
            pairs.append((key, value.decode("latin-1")))
    return tuple(pairs)


def write_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> list[Field]:
    """The fields of metadata; raises `ValueError` for what cannot be sent."""
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
            raise ValueError(f"metadata value of {key!r} is no printable ASCII text")
    return fields


def read_timeout(value: bytes) -> float:
    """Seconds of a `grpc-timeout`; raises `ValueError` when it is none."""
    found = _TIMEOUT.fullmatch(value)
    if found is None:
        raise ValueError("bad grpc-timeout")
    return int(found[1]) * _UNITS[found[2]]


def write_message(text: str) -> bytes:
    """A status message, percent-encoded."""
    return quote_from_bytes(text.encode(errors="replace"), safe=_PLAIN).encode()


def write_binary(data: bytes) -> bytes:
    """A binary value."""
    return b64encode(data).rstrip(b"=")


def _from_base64(value: bytes) -> bytes:
    try:
        return b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        raise ValueError("binary metadata is not in base64") from None
