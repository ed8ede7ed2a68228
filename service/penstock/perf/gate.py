"""Limits of results, from a file of TOML, for machines that check changes.

[limits]
throughput = { min = 100 }
"latency_ms.p99" = { max = 20 }
"comparison.throughput.low" = { min = 0.95 }
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.perf.errors import PerfError

_COMPARISON = "comparison."


@dataclass(frozen=True, slots=True)
class Limit:
    """The least and the largest value that a figure may have; its name is a path into results."""

    figure: str
    least: float | None
    largest: float | None


def read_gate(path: Path) -> list[Limit]:
    """The limits of a file; raises `PerfError`."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise PerfError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeError) as error:
        raise PerfError(f"{path}: not TOML: {error}") from error
    limits = content.get("limits")
    if not isinstance(limits, dict) or not limits:
        raise PerfError(f"{path}: there is no table [limits] with something in it")
    return [_limit(path, name, value) for name, value in limits.items()]


def _limit(path: Path, name: str, value: Any) -> Limit:
    known = isinstance(value, dict) and value and not set(value) - {"min", "max"}
    if not known or not all(isinstance(each, int | float) for each in value.values()):
        raise PerfError(f"{path}: {name}: write {{ min = 1.0 }}, {{ max = 2.0 }} or both")
    return Limit(name, value.get("min"), value.get("max"))


def violations(limits: list[Limit], results: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each limit that some load did not hold."""
    for limit in limits:
        if limit.figure.startswith(_COMPARISON):
            name = limit.figure.removeprefix(_COMPARISON)
            figures = results.get("comparison", {}).get("figures", {})
            yield from _violation(limit, "comparison", figure_at(figures, name))
            continue
        for point in results["points"]:
            yield from _violation(limit, point["load"]["label"], figure_at(point, limit.figure))


def _violation(limit: Limit, where: str, value: Any) -> Iterator[str]:
    if not isinstance(value, int | float):
        yield f"gate: {where}: there is no figure {limit.figure}"
    elif limit.least is not None and value < limit.least:
        yield f"gate: {where}: {limit.figure} is {value:.6g}, and has to be {limit.least:g} or more"
    elif limit.largest is not None and value > limit.largest:
        yield (
            f"gate: {where}: {limit.figure} is {value:.6g}, and has to be {limit.largest:g} or less"
        )


def figure_at(figures: Any, path: str) -> Any:
    """The value at a path of names with dots between them, of which a name may have some."""
    if not isinstance(figures, Mapping):
        return None
    if path in figures:
        return figures[path]
    heads = [path[:at] for at, letter in enumerate(path) if letter == "."]
    tails = (figure_at(figures[head], path[len(head) + 1 :]) for head in heads if head in figures)
    return next((tail for tail in tails if tail is not None), None)
