"""`InstanceTable`: the instances of a sequence batcher, with the slots and strategy of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from penstock.scheduling import Instance
from penstock.scheduling.sequences.instance import ObservedInstance, StatefulInstance
from penstock.scheduling.sequences.strategy import SequenceStep, Strategy
from penstock.scheduling.sequences.table import SequenceTable, Slot

MakeObserved = Callable[[StatefulInstance, Sequence[Slot]], tuple[ObservedInstance, Strategy]]


class InstanceEntry:
    """One instance; `memory` is that of the last check.

    A `leaving` one keeps its sequences and gets no others.
    """

    __slots__ = ("_observed", "instance", "leaving", "memory", "name", "number", "strategy")

    def __init__(
        self,
        number: int,
        instance: StatefulInstance,
        observed: ObservedInstance,
        strategy: Strategy,
    ) -> None:
        self.number = number
        self.name = instance.name
        self.instance = instance
        self.strategy = strategy
        self.memory: object | None = None
        self.leaving = False
        self._observed = observed

    def available(self) -> None:
        """Notify the strategy that the instance may execute another batch."""
        if (on_available := self._observed.on_available) is not None:
            on_available()


class InstanceTable:
    """Instances by number; a number is never reused.

    Calls `on_available` before the strategy of an instance is notified that it is available.
    """

    def __init__(
        self,
        slots: int,
        table: SequenceTable[SequenceStep],
        make: MakeObserved,
        on_available: Callable[[], None],
    ) -> None:
        self._slots = slots
        self._table = table
        self._make = make
        self._on_available = on_available
        self._entries: dict[int, InstanceEntry] = {}
        self._latest = -1

    def __getitem__(self, number: int) -> InstanceEntry:
        return self._entries[number]

    def __iter__(self) -> Iterator[InstanceEntry]:
        return iter(list(self._entries.values()))

    def find(self, instance: Instance) -> InstanceEntry | None:
        """The entry of an instance; `None` without one."""
        return next((entry for entry in self if entry.instance is instance), None)

    def replace(self, instances: Sequence[StatefulInstance]) -> None:
        """Add entries for new instances; those of others are leaving until they are removed."""
        for entry in self:
            entry.leaving = all(entry.instance is not instance for instance in instances)
            if entry.leaving:
                self._table.close(entry.number)
        for instance in instances:
            if self.find(instance) is None:
                self._add(instance)

    def remove(self, entry: InstanceEntry) -> None:
        """Remove a leaving instance that has no sequence any more."""
        del self._entries[entry.number]
        self._table.remove(entry.number)
        entry.instance.on_available = None

    def changed(self) -> Iterator[tuple[InstanceEntry, object | None]]:
        """Entries whose instance went down, came up or restarted, each with its old `memory`."""
        for entry in self:
            memory = entry.instance.memory
            if memory is not entry.memory:
                before, entry.memory = entry.memory, memory
                yield entry, before

    def _add(self, instance: StatefulInstance) -> None:
        """Add an instance, as down: `changed` reports it once it is up."""
        self._latest += 1
        slots = [Slot(number, self._latest) for number in range(self._slots)]
        self._table.add(slots)
        entry = InstanceEntry(self._latest, instance, *self._make(instance, slots))
        self._entries[entry.number] = entry

        def available() -> None:
            self._on_available()
            entry.available()

        instance.on_available = available
