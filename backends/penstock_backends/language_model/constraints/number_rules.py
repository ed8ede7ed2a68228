"""Numbers of JSON that end, as rules of grammars in xgrammar's notation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MOST_DIGITS: Final = 20
"""Digits of a number together, its exponent's among them, unless a schema asks for more."""

_EXPONENT: Final = r"([eE] [+\-]? [0-9]{1,3})?"

NUMBER_RULES: Final[Mapping[str, str]] = {
    "integer": '"-"? ("0" | [1-9] [0-9]{0,19})',
    "number": (
        f'"-"? (([0-9] ("." [0-9]{{1,16}})? | [1-9] [0-9]{{1,5}} ("." [0-9]{{1,11}})?) {_EXPONENT}'
        " | [1-9] [0-9]{6,19})"
    ),
}
"""The bodies of rules, by the type. A double has at most 17 digits that count."""
