"""Distributions of lengths, as users write them: `128`, `normal:128:32`, `uniform:64:256`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

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
    if first < 1 or second < 0 or (kind == "uniform" and second < first):
        raise ValueError(f"'{text}' has lengths that cannot be: write {_FORMS}")
    return Lengths(text, maker(first, second))


def _normal(mean: float, deviation: float) -> Callable[[random.Random], int]:
    return lambda chance: max(1, round(chance.gauss(mean, deviation)))


def _lognormal(median: float, sigma: float) -> Callable[[random.Random], int]:
    return lambda chance: max(1, round(median * chance.lognormvariate(0.0, sigma)))


def _uniform(low: float, high: float) -> Callable[[random.Random], int]:
    return lambda chance: chance.randint(int(low), int(high))
