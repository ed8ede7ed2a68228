"""Addresses of endpoints as users write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ADDRESS = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+)(?::(?P<port>\d{1,5}))?(?P<path>/\S*)?"
)


class AddressError(ValueError):
    """Text that is not an address; the message says what is."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an endpoint listens; `path` stands before what is asked for, without a last slash."""

    host: str
    port: int
    secure: bool = False
    path: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https://' if self.secure else ''}{host}:{self.port}{self.path}"


def parse_address(text: str, port: int) -> Address:
    """The address that `text` names: HOST, HOST:PORT or a URL; `port` is taken where none is given.

    Raises `AddressError`.
    """
    found = _ADDRESS.fullmatch(text)
    number = port if found is None or found["port"] is None else int(found["port"])
    if found is None or not 0 < number < 1 << 16:
        raise AddressError(
            f"'{text}' is not an address: write HOST:PORT or a URL, such as localhost:{port}"
        )
    path = (found["path"] or "").rstrip("/")
    return Address(found["host"].strip("[]"), number, found["scheme"] == "https", path)
