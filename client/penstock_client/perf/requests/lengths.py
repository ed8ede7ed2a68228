"""Distributions of lengths, as users write them: `128`, `normal:128:32`, `uniform:64:256`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

LONGEST = 1_000_000
"""Words of the longest prompt, and tokens of the longest answer, that may be asked for."""

_WIDEST = 10.0  # sigma of logarithms
_FORMS = "128, normal:MEAN:DEVIATION, lognormal:MEDIAN:SIGMA or uniform:LOW:HIGH"


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of whole numbers from 1 on, and the text that it was read from."""

    text: str
    draw: Callable[[random.Random], int]


def parse_lengths(text: str) -> Lengths:
    """The distribution that `text` names; raises `ValueError`."""
    kind, *numbers = text.split(":")
    if not numbers:
        kind, numbers = "uniform", [kind, kind]
    makers = {"normal": _normal, "lognormal": _lognormal, "uniform": _uniform}
    try:
        first, second = map(float, numbers)
        maker = makers[kind]
    except (KeyError, ValueError):
        raise ValueError(f"'{text}' is not a distribution of lengths: write {_FORMS}") from None
    most = _WIDEST if kind == "lognormal" else LONGEST
    if (
        not 1 <= first <= LONGEST
        or not 0 <= second <= most
        or (kind == "uniform" and second < first)
    ):
        raise ValueError(f"'{text}' has lengths that cannot be: write {_FORMS}")
    return Lengths(text, maker(first, second))


def _normal(mean: float, deviation: float) -> Callable[[random.Random], int]:
    return lambda chance: _whole(chance.gauss(mean, deviation))


def _lognormal(median: float, sigma: float) -> Callable[[random.Random], int]:
    return lambda chance: _whole(median * chance.lognormvariate(0.0, sigma))


def _whole(length: float) -> int:
    return max(1, min(LONGEST, round(length)))


def _uniform(low: float, high: float) -> Callable[[random.Random], int]:
    return lambda chance: chance.randint(int(low), int(high))
