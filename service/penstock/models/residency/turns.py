"""What is to be done for a load that finds no room: a decision without clock, task or lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from enum import Enum

from penstock.models.residency.memory import Resident, victims
from penstock.models.sizing.budget import Sizes


class Step(Enum):
    """`GO`: unload models. `WAIT`: until one may go. `LATER`: others that wait are to go first.

    `REFUSE`: those who call from models that hold the memory, and cannot go while they wait.
    `NEVER`: all who call, as there will be no room.
    """

    GO = "go"
    WAIT = "wait"
    LATER = "later"
    REFUSE = "refuse"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Turn:
    """The next step, with the models that go for it."""

    step: Step
    models: tuple[str, ...] = ()


def next_step(
    residents: Iterable[Resident],
    missing: Mapping[str, int],
    *,
    callers: Set[str] = frozenset(),
    stuck: Set[str] = frozenset(),
    loading: bool = False,
) -> Turn:
    """The next step for a load that lacks `missing` bytes by limit.

    Idle models go first. Where they are not enough, busy ones that had their turn go, too, as far
    as what is leaving already does not do: they answer the requests that they have, and further
    ones wait for their next load. `callers` are the models whose calls wait for this load, `stuck`
    are those whose calls wait for any that has no room: they are not done before these are, also
    where they are leaving. While others are `loading`, what is held may change.
    """
    residents = list(residents)
    idle = [one for one in residents if one.evictable]
    if chosen := victims(idle, missing):
        return Turn(Step.GO, tuple(chosen))
    moving = [one for one in residents if one.name not in stuck]
    still = +Sizes(missing)
    for one in moving:
        if one.leaving:
            still -= Sizes(one.sizes)
    ripe = [one for one in moving if one.ripe and not one.evictable]
    if chosen := victims([*idle, *ripe], still):
        return Turn(Step.GO, tuple(chosen))
    if loading or not still:
        return Turn(Step.WAIT)
    free = [one for one in residents if not one.pinned]
    if lacks(free, missing):
        return Turn(Step.NEVER)
    if lacks([one for one in free if one.name not in stuck], missing):
        return Turn(Step.REFUSE if callers else Step.LATER)
    return Turn(Step.WAIT)


def lacks(residents: Iterable[Resident], missing: Mapping[str, int]) -> bool:
    """Whether bytes are missing still where all of these go."""
    return bool(Sizes(missing) - sum((Sizes(one.sizes) for one in residents), Sizes()))
