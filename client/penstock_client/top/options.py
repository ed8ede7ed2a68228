"""Options of `penstock top`."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock_client.reading.address import (
    HTTP_PORT,
    METRICS_PORT,
    URL_VARIABLE,
    Address,
    AddressError,
    named_server,
    parse_address,
)
from penstock_client.top.view import SORTS

_SHORTEST = 0.1
_LONGEST = 3600.0


@dataclass(frozen=True, slots=True)
class Options:
    """Where the endpoints are, seconds between readings, and what to show: `models`, or all."""

    metrics: Address
    http: Address
    interval: float = 1.0
    sort: str = SORTS[0]
    once: bool = False
    json: bool = False
    models: Sequence[str] = ()


def read_options(arguments: Sequence[str]) -> Options:
    """The options; ends the program with a message where they are wrong."""
    made = parser()
    chosen = made.parse_intermixed_args(arguments)
    try:
        metrics, http = _endpoints(chosen.url)
    except AddressError as error:
        made.error(str(error))
    return Options(
        metrics,
        chosen.http or http,
        chosen.interval,
        chosen.sort,
        chosen.once,
        chosen.json,
        chosen.models,
    )


def _endpoints(metrics: Address | None) -> tuple[Address, Address]:
    """The metrics endpoint and the one of HTTP, where no option names this."""
    server = None if metrics else named_server(os.environ)
    if server is not None:
        return server.metrics, server.http
    metrics = metrics or Address("localhost", METRICS_PORT)
    return metrics, Address(metrics.host, HTTP_PORT, metrics.secure)


def parser() -> ArgumentParser:
    """The parser of the command line."""
    made = ArgumentParser(
        "penstock top",
        description="Show models, queues, batches and latencies of a running server.",
        epilog="Keys: q quit, s sort, arrows or j and k select, enter details of a model, esc back."
        " Where the output is not a terminal, one table is printed.",
    )
    made.add_argument("models", metavar="MODEL", nargs="*", help="show these only (default: all)")
    made.add_argument(
        "-u",
        "--url",
        metavar="HOST:PORT",
        type=_address(METRICS_PORT),
        help="the metrics endpoint (default: port"
        f" {METRICS_PORT} of the host in ${URL_VARIABLE}, or of localhost)",
    )
    made.add_argument(
        "--http",
        metavar="HOST:PORT",
        type=_address(HTTP_PORT),
        help=f"the HTTP endpoint (default: of ${URL_VARIABLE}, or port {HTTP_PORT} of the metrics"
        " endpoint's host)",
    )
    made.add_argument(
        "--interval",
        metavar="SECONDS",
        type=_seconds,
        default=1.0,
        help="seconds between readings (default: %(default)g)",
    )
    made.add_argument("--once", action="store_true", help="print one table, and end")
    made.add_argument("--json", action="store_true", help="print one JSON object, and end")
    made.add_argument(
        "--sort", choices=SORTS, default=SORTS[0], help="order of the models (default: %(default)s)"
    )
    return made


def _address(port: int) -> Callable[[str], Address]:
    def address(text: str) -> Address:
        try:
            return parse_address(text, port)
        except AddressError as error:
            raise ArgumentTypeError(str(error)) from None

    return address


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _SHORTEST <= seconds <= _LONGEST:
        raise ArgumentTypeError(
            f"'{text}' is not a number of seconds from {_SHORTEST:g} to {_LONGEST:g}"
        )
    return seconds
