"""Options that restrict groups of calls to clients that send a header."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli import compound
from penstock.cli.flags.flag import Flag, Gather
from penstock.settings import Feature, Restriction


def disjoint(kind: str) -> Gather:
    """Gathers restrictions; a feature may occur in one of them only."""

    def gather(before: tuple[Restriction, ...], value: Restriction) -> tuple[Restriction, ...]:
        taken = [feature for restriction in before for feature in restriction.features]
        compound.refuse_repeated([*taken, *sorted(value.features)], kind)
        return (*before, value)

    return gather


def restriction(
    name: str, kind: str, field: str, groups: Sequence[Feature] = compound.KSERVE_GROUPS
) -> Flag:
    return Flag(
        name,
        "string>:<string>=<string",
        compound.restriction(name, kind, groups),
        field,
        "Serve these groups of calls only to clients that send a header: "
        "<group>[,<group>]:<key>=<value>; for a value from elsewhere @<file> or $<variable>. "
        f"Groups: {', '.join(groups)}. Repeatable; a group may appear once.",
        disjoint(kind),
    )
