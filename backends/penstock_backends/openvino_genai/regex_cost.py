"""The cost of a regular expression, which the engine compiles in a step of all requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from penstock_backends.language_model import refuse
from penstock_backends.language_model.constraints import NAME

_MOST_ENDLESS: Final = 64
"""Unbounded repetitions: compiling takes the square of their number."""
_MOST_WORK: Final = 1 << 16
"""Parts that may be left out, squared, times the repetitions that they are of.

Compiling takes some 10 us for each with the demo's model: 1.3 s for `[a-z ]{0,500}`, 4.6 s for ten
times `[a-z ]{0,30}`, and minutes for 300 times `[a-z ]?`.
"""

Parts = Sequence[tuple[Any, Any]]
"""A sequence as `re` has parsed it: operations, and what they are applied to."""


def check_cost(parts: Parts) -> None:
    """Refuse what would take the engine long; raises `InvalidRequestError`."""
    endless = bounded = optional = 0
    for low, high, times in _repetitions(parts, 1):
        if high is None:
            endless += times
        elif high > low:
            bounded += times
            optional += (high - low) * times
    if endless > _MOST_ENDLESS:
        refuse(
            NAME,
            f"has a regex with {endless} unbounded repetitions, such as 'a*', more than "
            f"{_MOST_ENDLESS}",
        )
    if optional**2 * bounded > _MOST_WORK:
        refuse(
            NAME,
            f"has a regex with {bounded} repetitions, such as 'a?' or 'a{{1,9}}', of {optional} "
            "parts that may be left out, which would take long to compile: one of 256 parts is "
            "taken, 10 of 80 together, 40 of one each",
        )


def _repetitions(parts: Parts, times: int) -> Iterable[tuple[int, int | None, int]]:
    """Least, most (`None` for no bound) and number of each: inside of others there are several."""
    for operation, value in parts:
        name = str(operation)
        if name == "BRANCH":
            for branch in value[1]:
                yield from _repetitions(list(branch), times)
        elif name == "SUBPATTERN":
            yield from _repetitions(list(value[3]), times)
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, part = value
            most = None if str(high) == "MAXREPEAT" else int(high)
            yield low, most, times
            inner = max(low if most is None else most, 1)
            yield from _repetitions(list(part), times * inner)
