"""The instances that share the sequences of a model, with the slots and strategy of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from penstock.scheduling import Instance
from penstock.scheduling.sequences.instance import ObservedInstance, StatefulInstance
from penstock.scheduling.sequences.strategy import SequenceStep, Strategy
from penstock.scheduling.sequences.table import SequenceTable, Slot

MakeObserved = Callable[[StatefulInstance, Sequence[Slot]], tuple[ObservedInstance, Strategy]]


class InstanceEntry:
    """One instance; `memory` is what it remembered when it was last looked at.

    A `leaving` one keeps the sequences that it has and gets no others.
    """

    __slots__ = ("_watched", "leaving", "memory", "name", "number", "origin", "strategy")

    def __init__(
        self, number: int, origin: StatefulInstance, watched: ObservedInstance, strategy: Strategy
    ) -> None:
        self.number = number
        self.name = origin.name
        self.origin = origin
        self.strategy = strategy
        self.memory: object | None = None
        self.leaving = False
        self._watched = watched

    def available(self) -> None:
        """The instance may have another batch."""
        if (on_available := self._watched.on_available) is not None:
            on_available()


class InstanceTable:
    """One seat per instance, each with a number of its own that is never used again.

    Calls `on_available` before the strategy of an instance that may have another batch.
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
        self._seats: dict[int, InstanceEntry] = {}
        self._latest = -1

    def __getitem__(self, number: int) -> InstanceEntry:
        return self._seats[number]

    def __iter__(self) -> Iterator[InstanceEntry]:
        return iter(list(self._seats.values()))

    def of(self, instance: Instance) -> InstanceEntry | None:
        """The seat that an instance has."""
        return next((seat for seat in self if seat.origin is instance), None)

    def replace(self, instances: Sequence[StatefulInstance]) -> None:
        """Give seats to these; others keep theirs until they are removed."""
        for seat in self:
            seat.leaving = all(seat.origin is not instance for instance in instances)
            if seat.leaving:
                self._table.close(seat.number)
        for instance in instances:
            if self.of(instance) is None:
                self._add(instance)

    def remove(self, seat: InstanceEntry) -> None:
        """Forget an instance that is leaving and has no sequence any more."""
        del self._seats[seat.number]
        self._table.remove(seat.number)
        seat.origin.on_available = None

    def changed(self) -> Iterator[tuple[InstanceEntry, object | None]]:
        """Entries whose instance went down, came up or restarted, each with its old `memory`."""
        for seat in self:
            memory = seat.origin.memory
            if memory is not seat.memory:
                before, seat.memory = seat.memory, memory
                yield seat, before

    def _add(self, instance: StatefulInstance) -> None:
        """Add an instance, as down: `changed` reports it once it is up."""
        self._latest += 1
        slots = [Slot(number, self._latest) for number in range(self._slots)]
        self._table.add(slots)
        seat = InstanceEntry(self._latest, instance, *self._make(instance, slots))
        self._seats[seat.number] = seat

        def available() -> None:
            self._on_available()
            seat.available()

        instance.on_available = available
