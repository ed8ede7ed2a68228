"""The server that `$PENSTOCK_URL` names, for commands that speak to several of its endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock_client.top.address import Address, AddressError, parse_address

URL_VARIABLE = "PENSTOCK_URL"
"""The environment variable with the address of the server, where no option names it."""
GRPC_PORT, HTTP_PORT, METRICS_PORT = 8001, 8000, 8002


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
    text = addresses[0]
    by_http = text.startswith(("http://", "https://"))
    # What is without a scheme is gRPC's, whose schemes are ours alone.
    plain = text.removeprefix("grpc://").replace("grpcs://", "https://", 1)
    try:
        found = parse_address(plain, HTTP_PORT if by_http else GRPC_PORT)
    except AddressError:
        raise AddressError(
            f"${URL_VARIABLE}: '{text}' is not an address: write HOST:PORT of the gRPC endpoint,"
            " or http://HOST:PORT"
        ) from None
    return NamedServer(
        grpc=Address(found.host, GRPC_PORT, found.secure) if by_http else found,
        http=found if by_http else Address(found.host, HTTP_PORT, found.secure),
        metrics=Address(found.host, METRICS_PORT),
        by_http=by_http,
        guessed=by_http and found.port != HTTP_PORT,
    )
