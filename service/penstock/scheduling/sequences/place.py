"""What the strategy of one instance is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.scheduling.sequences.instance import Executed, MindfulInstance, WatchedInstance
from penstock.scheduling.sequences.live_sequence import Slot
from penstock.scheduling.sequences.strategy import Source, Step, Strategy
from penstock.scheduling.sequences.table import SequenceTable


@dataclass(frozen=True, slots=True)
class Place:
    """An instance, its slots, and how its strategy gets at their requests."""

    instance: MindfulInstance
    slots: Sequence[Slot]
    table: SequenceTable[Step]
    source: Source
    executed: Executed


MakeStrategy = Callable[[Place], tuple[WatchedInstance, Strategy]]
