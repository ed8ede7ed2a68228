"""Addresses of servers: `host:port` for gRPC, or a URL whose scheme names the protocol."""

from __future__ import annotations

from dataclasses import dataclass

_SCHEMES = {"grpc": 8001, "grpcs": 8001, "http": 8000, "https": 8000}


@dataclass(frozen=True, slots=True)
class Address:
    """A server: the protocol, whether it is encrypted, and `target`, as the transport wants it."""

    http: bool
    secure: bool
    target: str

    def __str__(self) -> str:
        scheme = ("https" if self.secure else "http") if self.http else "grpcs"
        return f"{scheme}://{self.target}" if self.http or self.secure else self.target


def parse_address(text: str, *, secure: bool = False) -> Address:
    """Parse an address; raises `ValueError`.

    Known are `host`, `host:port`, `[::1]:port`, `unix:PATH`, and URLs of the schemes `grpc`,
    `grpcs`, `http` and `https`. `secure` encrypts also where no scheme says so.
    """
    if text.startswith("unix:"):
        return Address(False, secure, text)
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "grpc", text
    if scheme not in _SCHEMES:
        raise ValueError(f"'{text}' is not an address: schemes are {', '.join(_SCHEMES)}")
    host, port = _split(rest.rstrip("/"), text)
    target = f"{host}:{port or _SCHEMES[scheme]}"
    return Address(scheme.startswith("http"), secure or scheme.endswith("s"), target)


def _split(rest: str, text: str) -> tuple[str, int | None]:
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, port = rest, ""
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or "/" in bare or (":" in bare and bare == host):
        raise ValueError(f"'{text}' is not an address: give HOST:PORT, and [HOST] for IPv6")
    if not port and not colon:
        return host, None
    if not port and rest.endswith("]"):
        return host, None
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"'{text}' is not an address: '{port}' is not a port")
    return host, int(port)
