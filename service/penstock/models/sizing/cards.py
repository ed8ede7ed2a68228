"""Cards that models may be put on, with their memory: the table is `cards.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from penstock.core.errors import InvalidRequestError
from penstock.core.nearest_name import suggestion

_TABLE = Path(__file__).with_name("cards.toml")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Card:
    """A kind of GPU: `gigabytes` as it is sold, `usable` are the bytes that programs may take."""

    key: str
    name: str
    gigabytes: int
    usable: int


@cache
def cards() -> Mapping[str, Card]:
    """All cards by their keys, the largest first."""
    table = tomllib.loads(_TABLE.read_text("utf-8"))
    reserved = table["reserved_mib"]
    return {
        key: Card(key, row["name"], row["gb"], (row["mib"] - reserved) * _MIB)
        for key, row in table["cards"].items()
    }


def find_card(key: str) -> Card:
    """The card of this key, in any case. Raises `InvalidRequestError`."""
    found = cards().get(key.lower())
    if found is None:
        raise InvalidRequestError(
            f"unknown card '{key}'; known are {', '.join(cards())}{suggestion(key, cards())}"
        )
    return found
