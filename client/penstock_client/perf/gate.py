"""Limits of results, from a file of TOML, for machines that check changes.

[limits]
throughput = { min = 100 }
"latency_ms.p99" = { max = 20 }
"comparison.throughput.low" = { min = 0.95 }

Limits are for each load, of two servers that are compared for each round of A. Those that begin
with `comparison.` are for the figures of both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from penstock_client.perf.errors import PerfError

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
    if unknown := set(content) - {"limits"}:
        raise PerfError(f"{path}: {sorted(unknown)[0]} is not known: there is the table [limits]")
    limits = content.get("limits")
    if not isinstance(limits, dict) or not limits:
        raise PerfError(f"{path}: there is no table [limits] with something in it")
    return [_limit(path, name, value) for name, value in limits.items()]


def _limit(path: Path, name: str, value: Any) -> Limit:
    known = isinstance(value, dict) and value and not set(value) - {"min", "max"}
    if not known or not all(map(_is_number, value.values())):
        raise PerfError(f"{path}: {name}: write {{ min = 1.0 }}, {{ max = 2.0 }} or both")
    return Limit(name, value.get("min"), value.get("max"))


def _is_number(value: Any) -> bool:
    """Whether something can be more or less than this, which nothing is than `nan`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and not isnan(value)


def check_usable(limits: Sequence[Limit], *, compared: bool) -> None:
    """Raises `PerfError` for a limit of what will not be measured: nothing is compared."""
    for limit in limits:
        if limit.figure.startswith(_COMPARISON) and not compared:
            raise PerfError(f"gate: {limit.figure} is for --compare A B")


def violations(limits: Sequence[Limit], results: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each limit that some load did not hold, or that nothing was measured for."""
    rounds = [each for each in results.get("rounds", ()) if each["side"] == "A"]
    comparison = results.get("comparison", {}).get("figures", {})
    for limit in limits:
        if limit.figure.startswith(_COMPARISON):
            figure = figure_at(comparison, limit.figure.removeprefix(_COMPARISON))
            yield from _violation(limit, "comparison", figure)
            continue
        loads = [*results["points"], *rounds]
        for load in loads:
            yield from _violation(limit, load["load"]["label"], figure_at(load, limit.figure))
        if not loads:
            yield f"gate: nothing was measured for {limit.figure}"


def _violation(limit: Limit, where: str, value: Any) -> Iterator[str]:
    if not isinstance(value, int | float):
        yield f"gate: {where}: there is no figure {limit.figure}"
    elif limit.least is not None and not value >= limit.least:
        yield f"gate: {where}: {limit.figure} is {value:.6g}, and has to be {limit.least:g} or more"
    elif limit.largest is not None and not value <= limit.largest:
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
