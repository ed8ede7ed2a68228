"""Addresses of endpoints as users write them, and the server that `$PENSTOCK_URL` names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

URL_VARIABLE = "PENSTOCK_URL"
"""The environment variable with the address of the server, where no option names it."""
GRPC_PORT, HTTP_PORT, METRICS_PORT = 8001, 8000, 8002

_ADDRESS = re.compile(
    r"(?:(?P<scheme>[a-z]+)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+)(?::(?P<port>[0-9]{1,5}))?(?P<path>/\S*)?"
)
_UNIX = "unix:"
_PORTS = {
    **dict.fromkeys(("", "grpc", "grpcs"), GRPC_PORT),
    **dict.fromkeys(("http", "https"), HTTP_PORT),
}
"""Schemes of a server's address, and the usual ports: what is without a scheme is gRPC's."""


class AddressError(ValueError):
    """Text that is not an address; the message says what is."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an endpoint listens; `path` stands before what is asked for, without a last slash."""

    host: str
    port: int
    secure: bool = False
    path: str = ""

    @property
    def authority(self) -> str:
        """Host and port as they stand in requests."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'https://' if self.secure else ''}{self.authority}{self.path}"


@dataclass(frozen=True, slots=True)
class ServerAddress(Address):
    """The address of a server, with the protocol that it is asked by; `host` may be a socket."""

    http: bool = False

    @property
    def target(self) -> str:
        """The address as a channel of gRPC wants it."""
        return self.host if self.host.startswith(_UNIX) else self.authority

    def __str__(self) -> str:
        scheme = ("https" if self.secure else "http") if self.http else "grpcs"
        return f"{scheme}://{self.target}" if self.http or self.secure else self.target


@dataclass(frozen=True, slots=True)
class NamedServer:
    """The endpoints of a server; `by_http` says that the variable names the one of HTTP, `guessed`
    that this is on a port which does not tell that of gRPC.
    """

    grpc: Address
    http: Address
    metrics: Address
    by_http: bool
    guessed: bool = False


def parse_address(text: str, port: int) -> Address:
    """The address that `text` names: HOST, HOST:PORT or a URL; `port` is taken where none is given.

    Raises `AddressError`.
    """
    found = _read(text, dict.fromkeys(("", "http", "https"), port))
    if found is None:
        raise AddressError(
            f"'{text}' is not an address: write HOST:PORT or a URL, such as localhost:{port}"
        )
    return found[1]


def parse_server(text: str, *, secure: bool = False) -> ServerAddress:
    """The address of a server; raises `AddressError`.

    Known are `host`, `host:port`, `[::1]:port`, `unix:PATH`, and URLs of the schemes `grpc`,
    `grpcs`, `http` and `https`. `secure` encrypts also where no scheme says so.
    """
    if text.startswith(_UNIX):
        return ServerAddress(text, 0, secure)
    found = _read(text, _PORTS)
    if found is None or found[1].path:
        raise AddressError(
            f"'{text}' is not an address: write HOST:PORT, [HOST]:PORT for IPv6, or a URL of"
            f" {', '.join(filter(None, _PORTS))}"
        )
    scheme, address = found
    return ServerAddress(
        address.host, address.port, secure or address.secure, http=scheme.startswith("http")
    )


def named_addresses(environment: Mapping[str, str]) -> list[str]:
    """The addresses of the variable, as they are written."""
    return environment.get(URL_VARIABLE, "").split()


def named_server(environment: Mapping[str, str]) -> NamedServer | None:
    """The first server of the variable; endpoints that it does not name have their usual ports.

    Raises `AddressError`.
    """
    addresses = named_addresses(environment)
    if not addresses:
        return None
    read = _read(addresses[0], _PORTS)
    if read is None:
        raise AddressError(
            f"${URL_VARIABLE}: '{addresses[0]}' is not an address: write HOST:PORT of the gRPC"
            " endpoint, or http://HOST:PORT"
        )
    scheme, found = read
    by_http = scheme.startswith("http")
    return NamedServer(
        grpc=Address(found.host, GRPC_PORT, found.secure) if by_http else found,
        http=found if by_http else Address(found.host, HTTP_PORT, found.secure),
        metrics=Address(found.host, METRICS_PORT),
        by_http=by_http,
        guessed=by_http and found.port != HTTP_PORT,
    )


def _read(text: str, ports: Mapping[str, int]) -> tuple[str, Address] | None:
    """The scheme, one of those that have a port here, and the address; `None` for other text."""
    found = _ADDRESS.fullmatch(text)
    scheme = "" if found is None else found["scheme"] or ""
    if found is None or scheme not in ports:
        return None
    port = ports[scheme] if found["port"] is None else int(found["port"])
    if not 0 < port < 1 << 16:
        return None
    path = (found["path"] or "").rstrip("/")
    return scheme, Address(found["host"].strip("[]"), port, scheme in ("https", "grpcs"), path)
