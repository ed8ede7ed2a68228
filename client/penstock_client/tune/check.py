"""The best variant beside the original once more: what was best of many was lucky, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from statistics import fmean
from typing import Any

from penstock_client.perf.compare import comparison
from penstock_client.tune.choice import Aims, Figures, standing
from penstock_client.tune.search import MARGIN


@dataclass(frozen=True, slots=True)
class Check:
    """The result of rounds in turns: `gain` is the best's weighted objectives by the original's.

    It is `None` where either of both kept the limits in no round; `broken` is in how many rounds
    the best did not keep them.
    """

    rounds: int
    broken: int
    gain: float | None
    comparison: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_confirmed(self) -> bool:
        """Whether the best keeps the limits in most rounds, and gains more than noise."""
        enough = self.gain is None or self.gain > exp(MARGIN)
        return 2 * self.broken < self.rounds and enough


def checked(pairs: Sequence[tuple[Figures, Figures]], aims: Aims) -> Check:
    """The check from the figures of the best and of the original in each round."""
    standings = [(standing(one, aims), standing(other, aims)) for one, other in pairs]
    gains = [one.value - other.value for one, other in standings if one.kept and other.kept]
    return Check(
        rounds=len(pairs),
        broken=sum(not one.kept for one, _ in standings),
        gain=exp(fmean(gains)) if gains else None,
        comparison=comparison(pairs, ("best", "original")),
    )
