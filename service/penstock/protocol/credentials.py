"""The headers, or metadata, by which callers are known."""

from __future__ import annotations

from collections.abc import Iterable

CREDENTIAL_HEADERS = ("authorization", "x-api-key", "api-key")
"""The headers that hold a key or a token; names are in lower case."""

SECRET_PREFIX = "triton-grpc-protocol-"
"""Beginning of the names of metadata that carry shared secrets of restricted calls."""


def text_metadata(fields: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
    """The metadata of a gRPC call that is text, by name; the last of equal names wins.

    Credentials and secrets that are sent more than once are joined (RFC 9110, section 5.3), which
    makes none of them: who reads another of them than a proxy before it lets in whom the proxy has
    not asked.
    """
    named: dict[str, str] = {}
    for name, value in fields:
        if isinstance(value, str):
            twice = name in named and _lets_in(name)
            named[name] = f"{named[name]}, {value}" if twice else value
    return named


def _lets_in(name: str) -> bool:
    return name in CREDENTIAL_HEADERS or name.startswith(SECRET_PREFIX)
