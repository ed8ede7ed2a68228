"""Options of `penstock tune`, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock_client.perf.wire.endpoint import Endpoint
from penstock_client.reading.address import Address
from penstock_client.tune.choice import Aims
from penstock_client.tune.load.loads import Loads

BRUTE, QUICK, OPTUNA = "brute", "quick", "optuna"
MODES = (QUICK, BRUTE, OPTUNA)


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a search may measure: variants, and seconds; 0 is without a bound."""

    variants: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Trials:
    """Numbers of variants that Optuna tries: shares of the space, but so many at least.

    `patience` variants without a gain end the search.
    """

    least_share: float = 0.05
    most_share: float = 0.10
    least: int = 5
    most: int = 20
    patience: int = 10

    def bounds(self, size: int) -> tuple[int, int]:
        """The fewest and the most variants in a space of this size."""
        least = max(self.least, round(self.least_share * size))
        return min(size, least), min(size, max(self.most, least, round(self.most_share * size)))


@dataclass(frozen=True, slots=True)
class Serving:
    """Options of servers: further flags, variables, and the time a model may take to load."""

    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    load_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Remote:
    """The endpoints of a server that runs already."""

    grpc: Endpoint
    http: Endpoint
    metrics: Address


@dataclass(frozen=True, slots=True)
class Member:
    """One of several models that are measured at the same time, with its words for perf."""

    model: str
    perf: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """One model's search, or that of several `together`, the model among them.

    `parts` are composing models whose settings are searched, too. Without a `remote` server there
    is a new one for each variant. `top` is how many of the best variants get files of their own.
    `values` are those of its dimensions by name; without any they are found, and so are objectives
    of `aims`. `perf` are further words for `penstock perf`, such as `--shape`. In `rounds` the best
    variant is measured beside the original once more.
    """

    model: str
    repositories: tuple[Path, ...]
    output: Path
    mode: str
    values: Mapping[str, tuple[Any, ...]]
    loads: Loads
    aims: Aims
    perf: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    together: tuple[Member, ...] = ()
    remote: Remote | None = None
    serving: Serving = field(default_factory=Serving)
    budget: Budget = field(default_factory=Budget)
    trials: Trials = field(default_factory=Trials)
    rounds: int = 3
    top: int = 3
    resume: bool = False
    quiet: bool = False

    @property
    def name(self) -> str:
        """The model's name, or those of several together."""
        return "+".join(each.model for each in self.together) or self.model
