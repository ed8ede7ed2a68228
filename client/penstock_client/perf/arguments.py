"""Values of options as users write them; each function raises `ValueError` with what is right."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from math import floor, isfinite
from typing import Any

from penstock_client.perf.options import Target
from penstock_client.perf.requests.kserve import Parameter
from penstock_client.perf.requests.prompts import SharedPrefix
from penstock_client.perf.summary import GOALS, Goal
from penstock_client.perf.wire.endpoint import Endpoint
from penstock_client.reading.address import Address, AddressError, parse_address

_METRICS_PORT = 8002
_MOST_LOADS = 1000
_TYPES: Mapping[str, Callable[[str], Parameter]] = {
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": int,
    "uint": int,
    "double": float,
    "string": str,
}


def target(text: str, port: int, tls: Mapping[str, Any], metrics: str | None, pid: int) -> Target:
    """A server; raises `argparse.ArgumentTypeError`."""
    try:
        found = parse_address(text, port)
        page = parse_address(metrics, _METRICS_PORT) if metrics else None
    except AddressError as error:
        raise ArgumentTypeError(str(error)) from None
    endpoint = Endpoint(found.host, found.port, found.secure, **tls)
    return Target(endpoint, found.path, _page(page), pid)


def _page(address: Address | None) -> Address | None:
    if address is None or address.path != "/metrics":
        return address
    return Address(address.host, address.port, address.secure)


def whole(least: int) -> Callable[[str], int]:
    """Reads a whole number that is not smaller."""

    def read(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise ArgumentTypeError(f"'{text}' is not a whole number from {least} on")
        return int(text)

    return read


def seconds(text: str) -> float:
    """A number of seconds from 0 on."""
    return _number(text, 0.0, "seconds")


def positive(text: str) -> float:
    """A number of seconds above a tenth."""
    return _number(text, 0.1, "seconds from 0.1 on")


def percentage(text: str) -> float:
    """A share in percent."""
    return _number(text, 0.0, "percent")


def _number(text: str, least: float, what: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not isfinite(found) or found < least:
        raise ValueError(f"'{text}' is not a number of {what}")
    return found


def numbers(text: str) -> tuple[float, ...]:
    """`4`, `1,2,4`, or `START:END:STEP` with the end included, as perf_analyzer has it."""
    try:
        if ":" in text:
            parts = [float(part) for part in text.split(":")]
            start, end, step = (*parts, 1.0)[:3]
            count = floor((end - start) / step + 1e-9) + 1 if step > 0 and len(parts) < 4 else 0
            found = [start + step * number for number in range(min(count, _MOST_LOADS + 1))]
        else:
            found = [float(part) for part in text.split(",")]
    except (ValueError, OverflowError):
        found = []
    if not found or any(not isfinite(each) or each <= 0 for each in found):
        raise ValueError(f"'{text}' is not one or more numbers: write 4, 1,2,4 or 1:8:1")
    if len(found) > _MOST_LOADS:
        raise ValueError(f"'{text}' is more than {_MOST_LOADS} loads")
    return tuple(found)


def whole_numbers(text: str) -> tuple[float, ...]:
    """As `numbers`, all of them whole."""
    found = numbers(text)
    if any(not each.is_integer() for each in found):
        raise ValueError(f"'{text}' is not one or more whole numbers: write 4, 1,2,4 or 1:8:1")
    return found


def header(text: str) -> tuple[str, str]:
    """A header's name and value."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or any(c in text for c in "\r\n"):
        raise ValueError(f"'{text}' is not a header: write NAME:VALUE")
    return name.strip(), value.strip()


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """An input's name and its sizes."""
    name, _, sizes = text.rpartition(":")
    if not name or not all(size.isdecimal() for size in sizes.split(",")):
        raise ValueError(f"'{text}' is not a shape: write INPUT:4,16")
    return name, tuple(map(int, sizes.split(",")))


def _named(name: str) -> str:
    if not name:
        raise ValueError
    return name


def parameter(text: str) -> tuple[str, Parameter]:
    """A parameter of requests, with its type."""
    name, _, rest = text.partition(":")
    value, _, kind = rest.rpartition(":")
    try:
        return _named(name), _TYPES[kind](value)
    except (KeyError, ValueError):
        raise ValueError(
            f"'{text}' is not a parameter: write NAME:VALUE:TYPE, with one of {', '.join(_TYPES)}"
        ) from None


def shared_prefix(text: str) -> SharedPrefix:
    """The number of words that prompts have in common, and of such beginnings."""
    words, _, count = text.partition(":")
    if not words.isdigit() or (count and (not count.isdigit() or count == "0")):
        raise ValueError(f"'{text}' is not a shared prefix: write WORDS or WORDS:COUNT")
    return SharedPrefix(int(words), int(count or 1))


def goal(text: str) -> Goal:
    """A limit for goodput, by genai-perf's name of a metric or a shorter one."""
    name, _, limit = text.rpartition(":")
    metric = GOALS.get(name, name)
    try:
        number = float(limit)
    except ValueError:
        number = 0.0
    if metric not in GOALS.values() or not isfinite(number) or number <= 0:
        raise ValueError(f"'{text}' is not a limit: write one of {', '.join(GOALS)} and its value")
    return Goal(metric, number)
