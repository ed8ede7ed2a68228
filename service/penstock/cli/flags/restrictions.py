"""Options that restrict groups of calls to clients that send a header."""

from __future__ import annotations

from penstock.cli import compound
from penstock.cli.flags.flag import Flag, Gather
from penstock.settings import Restriction


def disjoint(kind: str) -> Gather:
    """Gathers restrictions; a feature may occur in one of them only."""

    def gather(before: tuple[Restriction, ...], value: Restriction) -> tuple[Restriction, ...]:
        taken = [feature for restriction in before for feature in restriction.features]
        compound.refuse_repeated([*taken, *sorted(value.features)], kind)
        return (*before, value)

    return gather


def restriction(name: str, kind: str, field: str) -> Flag:
    return Flag(
        name,
        "string>:<string>=<string",
        compound.restriction(name, kind),
        field,
        "Serve these groups of calls only to clients that send a header: "
        "<group>[,<group>]:<key>=<value>. Groups: health, metadata, inference, shared-memory, "
        "model-config, model-repository, statistics, trace, logging, engine-control. Repeatable; "
        "a group may appear once.",
        disjoint(kind),
    )
