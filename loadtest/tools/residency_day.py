"""Which models go for others: the formula of residency beside others, over a day's trace.

    python -m loadtest.tools.residency_day [--calls 30000] [--seed 1]

Sixty models of 0.5 to 16 GiB, called by Zipf's law, each with its own hour of the day; large ones
take longer to load, language models longest. No server runs: the decider is asked, and time is
counted. A call of a model that is not there waits for its load.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.models.residency.memory import Resident, victims

_GIB = 1 << 30
_DAY = 86400.0
_MODELS = 60
_BUSY_SECONDS = 1.0
"""For how long a model has requests after a call."""

Choose = Callable[[Sequence[Resident], int], list[str]]


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """Bytes, the seconds of a load, and how often it is called at an hour."""

    name: str
    size: int
    load_seconds: float
    share: float
    peak: float

    def rate(self, at: float) -> float:
        """How often it is called at this second of the day, beside others."""
        angle = 2 * math.pi * (at / _DAY - self.peak)
        return self.share * (1 + 0.9 * math.cos(angle))


@dataclass(slots=True)
class Day:
    """What a strategy made of a day."""

    loads: int = 0
    loading: float = 0.0


def models(chance: random.Random) -> list[SimulatedModel]:
    """The models, of which each third is a language model that loads slowly."""
    found = []
    for rank in range(1, _MODELS + 1):
        size = int(_GIB * 0.5 * 2 ** chance.uniform(0, 5))
        seconds = 1 + size / _GIB * (4 if chance.random() < 1 / 3 else 0.5)
        found.append(SimulatedModel(f"m{rank:02}", size, seconds, 1 / rank, chance.random()))
    return found


def trace(
    all_models: Sequence[SimulatedModel], calls: int, chance: random.Random
) -> list[tuple[float, SimulatedModel]]:
    """The calls of a day: more by day than by night, of each model most at its own hour."""
    times = sorted(
        at
        for at in (chance.uniform(0, _DAY) for _ in range(2 * calls))
        if chance.random() < 0.5 * (1 - 0.8 * math.cos(2 * math.pi * at / _DAY))
    )
    return [(at, chance.choices(all_models, [m.rate(at) for m in all_models])[0]) for at in times]


def simulated(calls: Sequence[tuple[float, SimulatedModel]], budget: int, choose: Choose) -> Day:
    """A day with this much memory, and this way to choose what goes."""
    day, used, sizes = Day(), dict[str, float](), dict[str, SimulatedModel]()
    for at, model in calls:
        if model.name in sizes:
            used[model.name] = at
            continue
        missing = sum(one.size for one in sizes.values()) + model.size - budget
        if missing > 0:
            residents = [_resident(one, at - used[one.name]) for one in sizes.values()]
            for name in choose(residents, missing):
                del sizes[name]
        day.loads += 1
        day.loading += model.load_seconds
        sizes[model.name] = model
        used[model.name] = at + model.load_seconds
    return day


def _resident(model: SimulatedModel, idle: float) -> Resident:
    idle = max(idle, 0.0)
    return Resident(model.name, {"": model.size}, idle, model.load_seconds, idle > _BUSY_SECONDS)


def by_worth(residents: Sequence[Resident], missing: int) -> list[str]:
    """The formula, as the server asks it: idle ones, and where these are not enough, busy ones."""
    return victims(residents, {"": missing}) or victims(map(_ripe, residents), {"": missing})


def _ripe(one: Resident) -> Resident:
    return replace(one, ripe=True)


def in_order(key: Callable[[Resident], float]) -> Choose:
    """Those of the smallest key go, until there is room."""

    def choose(residents: Sequence[Resident], missing: int) -> list[str]:
        chosen: list[str] = []
        for one in sorted(residents, key=key):
            if missing <= 0:
                break
            chosen.append(one.name)
            missing -= one.sizes[""]
        return chosen

    return choose


def strategies(chance: random.Random) -> Mapping[str, Choose]:
    """Ways to choose, by name."""
    return {
        "worth": by_worth,
        "longest idle": in_order(lambda one: -one.idle_seconds),
        "largest": in_order(lambda one: -one.sizes[""]),
        "quickest to load": in_order(lambda one: one.load_seconds),
        "by chance": in_order(lambda _: chance.random()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    all_models = models(chance)
    calls = trace(all_models, options.calls, chance)
    whole = sum(one.size for one in all_models)
    print(f"{len(calls)} calls of {len(all_models)} models of {whole / _GIB:.0f} GiB in all\n")
    print("| what goes | memory | calls that wait | loads | hours of loading |")
    print("|---|---|---|---|---|")
    for share in (0.2, 0.4, 0.6):
        for name, choose in strategies(chance).items():
            day = simulated(calls, int(whole * share), choose)
            waits = day.loads / len(calls)
            print(
                f"| {name} | {share:.0%} | {waits:.2%} | {day.loads} | {day.loading / 3600:.1f} |"
            )


if __name__ == "__main__":
    main()
