"""Values of options as users write them; each function raises `ValueError` with what is right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

from penstock_client.tune.choice import OBJECTIVES, Objective, objective
from penstock_client.tune.settings import OFF

_RANGE = re.compile(r"(\d+)(?:-|:)(\d+)(?::(\d+))?")
_AMOUNT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)")
_MILLISECONDS = {"": 1.0, "us": 1e-3, "ms": 1.0, "s": 1e3}
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES: Mapping[str, float] = {
    "": 1,
    "b": 1,
    **{f"{unit}ib": 1 << 10 * power for power, unit in enumerate("kmgt", 1)},
    **{f"{unit}b": 1000**power for power, unit in enumerate("kmgt", 1)},
}


def whole_numbers(words: Iterable[str], least: int = 1) -> tuple[int, ...]:
    """`1-4`, `1:8:2` (the end included), `1,2,4`, or several words; sorted, each once."""
    found: set[int] = set()
    for text in (part for word in words for part in word.split(",")):
        if match := _RANGE.fullmatch(text):
            first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
            numbers = range(first, last + 1, step) if step else ()
        else:
            numbers = range(int(text), int(text) + 1) if text.isdigit() else ()
        if not numbers or numbers[0] < least:
            raise ValueError(
                f"'{text}' is not one or more whole numbers from {least} on: write 4, 1-4, 1,2,4"
                " or 2:8:2"
            )
        found.update(numbers)
    return tuple(sorted(found))


def first_and_last(text: str) -> tuple[int, int]:
    """`A-B`."""
    numbers = whole_numbers([text])
    return numbers[0], numbers[-1]


def delays(words: Iterable[str]) -> tuple[int | str, ...]:
    """Microseconds in a queue; `off` is a model without dynamic batching, and comes first."""
    texts = [part for word in words for part in word.split(",")]
    numbers = [text for text in texts if text != OFF]
    without: tuple[str, ...] = (OFF,) if len(numbers) < len(texts) else ()
    return (*without, *(whole_numbers(numbers, 0) if numbers else ()))


def switches(words: Iterable[str]) -> tuple[bool, ...]:
    """`off`, `on`, or both."""
    found = []
    for text in (part for word in words for part in word.split(",")):
        if text not in ("on", OFF):
            raise ValueError(f"'{text}' is neither on nor off")
        found.append(text == "on")
    return tuple(dict.fromkeys(found))


def named_values(text: str) -> tuple[str, tuple[Any, ...]]:
    """`NAME=VALUE,VALUE`, each value as JSON if it is that."""
    name, equals, rest = text.partition("=")
    if not name or not equals or not rest:
        raise ValueError(f"'{text}' is not a setting with values: write NAME=VALUE,VALUE")
    return name, tuple(_value(each) for each in _split(rest))


_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|.', re.DOTALL)


def _split(text: str) -> list[str]:
    """Parts between commas that are not within brackets or quotes."""
    parts, depth = [""], 0
    for piece in _PIECE.findall(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(piece, 0)
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def milliseconds(text: str) -> float:
    """`20ms`, `0.5s`, `800us`; without a unit milliseconds."""
    return _amount(text, _MILLISECONDS, "a time", "20ms or 0.5s")


def seconds(text: str) -> float:
    """`90s`, `10m`, `2h`; without a unit seconds."""
    return _amount(text, _SECONDS, "a time", "90s, 10m or 2h")


def size(text: str) -> float:
    """`1GiB`, `512MiB`, `2GB`; without a unit bytes."""
    return _amount(text, _BYTES, "an amount of memory", "512MiB or 1GiB")


def _amount(text: str, units: Mapping[str, float], what: str, example: str) -> float:
    match = _AMOUNT.fullmatch(text.strip())
    unit = match[2] if match and match[2] in units else match[2].lower() if match else ""
    if match is None or unit not in units or not float(match[1]):
        raise ValueError(f"'{text}' is not {what}: write {example}")
    return float(match[1]) * units[unit]


def rate(text: str) -> float:
    """A number above 0, a second for instance."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.0 < found < inf:
        raise ValueError(f"'{text}' is not a number above 0")
    return found


def weighted_objective(text: str) -> Objective:
    """`NAME` or `NAME:WEIGHT`."""
    name, _, weight = text.partition(":")
    try:
        number = float(weight or 1)
    except ValueError:
        number = 0.0
    if name not in OBJECTIVES or number <= 0:
        raise ValueError(
            f"'{text}' is not an objective: write one of {', '.join(OBJECTIVES)}, with :WEIGHT"
            " where there are several"
        )
    return objective(name, number)


def weight(text: str) -> tuple[str, float]:
    """`MODEL=N`, N above 0."""
    name, number = assignment(text)
    return name, rate(number)


def assignment(text: str) -> tuple[str, str]:
    """`NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"'{text}' is not NAME=VALUE")
    return name, value
