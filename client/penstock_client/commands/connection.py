"""The options that all commands of clients have: which server, deadline, headers, TLS."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

from penstock_client.client import CallPolicy, Client, Tls
from penstock_client.commands.values import assignment, option_value
from penstock_client.reading.address import URL_VARIABLE, named_addresses, parse_server

_DEFAULT = "localhost:8001"


def client_parser(name: str, description: str, epilog: str = "") -> ArgumentParser:
    """A parser of `penstock NAME` with the options of the connection."""
    parser = ArgumentParser(f"penstock {name}", description=description, epilog=epilog)
    group = parser.add_argument_group("server")
    group.add_argument(
        "-u",
        "--url",
        metavar="ADDRESS",
        action="append",
        type=_address,
        help="HOST:PORT of the gRPC endpoint, or http://HOST:PORT; several share the requests"
        f" (default: ${URL_VARIABLE}, or {_DEFAULT})",
    )
    group.add_argument("--timeout", metavar="SECONDS", type=seconds, help="give up after so long")
    group.add_argument(
        "--header",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=_header,
        help="a header of each request; may be given several times",
    )
    group.add_argument("--tls", action="store_true", help="encrypt the connection")
    group.add_argument("--ca", metavar="FILE", help="authorities to trust, as PEM; implies --tls")
    group.add_argument("--cert", metavar="FILE", help="the client's certificate, as PEM")
    group.add_argument("--key", metavar="FILE", help="the key of the certificate, as PEM")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def add_request_options(parser: ArgumentParser) -> None:
    """Add what every inference request may have."""
    group = parser.add_argument_group("request")
    group.add_argument("--id", default="", help="an id for the request")
    group.add_argument(
        "--priority", metavar="N", type=_whole, default=0, help="1 is the most urgent (default: 0)"
    )
    group.add_argument(
        "--parameter",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=assignment,
        help="a parameter of the request; may be given several times",
    )
    group.add_argument(
        "--retries",
        metavar="N",
        type=_whole,
        default=0,
        help="try so often again what the server refuses for now, or cannot be reached for",
    )


def add_hedge_option(parser: ArgumentParser) -> None:
    """Add the option for a second request, which models that answer once may have."""
    parser.add_argument(
        "--hedge",
        metavar="SECONDS",
        type=seconds,
        help="send a second request after so long without an answer; the first answer counts",
    )


def request_parameters(options: Namespace) -> dict[str, Any]:
    """The parameters of the request."""
    return {name: option_value(text) for name, text in options.parameter}


def open_client(options: Namespace) -> Client:
    """The client that the options describe."""
    urls = options.url or [_address(each) for each in named_addresses(os.environ) or [_DEFAULT]]
    tls = None
    if options.tls or options.ca or options.cert:
        tls = Tls(ca_file=options.ca, cert_file=options.cert, key_file=options.key)
    policy = CallPolicy(
        attempts=1 + getattr(options, "retries", 0), hedge_after=getattr(options, "hedge", None)
    )
    headers = dict(options.header)
    return Client(*urls, headers=headers, tls=tls, timeout=options.timeout, policy=policy)


def seconds(text: str) -> float:
    """A positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise ArgumentTypeError(f"'{text}' is not a positive number of seconds")
    return value


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ArgumentTypeError(f"'{text}' is not a whole number, 0 or more")
    return int(text)


def _address(text: str) -> str:
    try:
        parse_server(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    return text


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value
