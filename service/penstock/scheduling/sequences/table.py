"""`SequenceTable`: live sequences, their slots and queues, without a clock, task or lock."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Generic, TypeVar

from penstock.core.tensor import Tensor

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """A slot for one sequence: `number` is the row in batches of that instance.

    Ordered by number first, so that sequences spread over the instances.
    """

    number: int
    instance: int


class LiveSequence(Generic[T]):
    """One sequence: its slot, if it has one, its queue, and `taken`, the request in execution.

    It is `ended` when no more requests belong to it. `state` holds its implicit states. `expires`
    is when its requests time out if it has no slot by then.
    """

    __slots__ = ("ended", "expires", "id", "slot", "state", "taken", "touched", "waiting")

    def __init__(self, id: Hashable, now: float) -> None:
        self.id = id
        self.slot: Slot | None = None
        self.waiting: deque[T] = deque()
        self.taken: T | None = None
        self.ended = False
        self.touched = now
        self.expires = inf
        self.state: dict[str, Tensor] = {}

    @property
    def ready(self) -> bool:
        """Whether its next request can be executed."""
        return self.slot is not None and self.taken is None and bool(self.waiting)


class SequenceTable(Generic[T]):
    """Live sequences by id, the slots that they hold, and the backlog of those without one.

    A sequence keeps its slot until it has ended and all its requests are done; then the oldest
    of the backlog gets it. Methods that return sequences return those that have just got a slot.
    """

    def __init__(self, slots: Iterable[Slot] = ()) -> None:
        self._free = sorted(slots)
        self._parked: dict[int, list[Slot]] = {}
        self._holders: dict[Slot, LiveSequence[T]] = {}
        self._live: OrderedDict[Hashable, LiveSequence[T]] = OrderedDict()
        self._backlog: dict[LiveSequence[T], None] = {}
        self._expiries: list[tuple[float, int, LiveSequence[T]]] = []
        self._order = count()

    # -- looking up ---------------------------------------------------------------------------

    def find(self, id: Hashable) -> LiveSequence[T] | None:
        """The live sequence with this id."""
        return self._live.get(id)

    def holder(self, slot: Slot) -> LiveSequence[T] | None:
        """The sequence that holds the slot."""
        return self._holders.get(slot)

    @property
    def sequences(self) -> Iterator[LiveSequence[T]]:
        """Every sequence that holds a slot or waits for one."""
        yield from [*self._holders.values(), *self._backlog]

    @property
    def empty(self) -> bool:
        """Whether no sequence is live."""
        return not self._holders and not self._backlog

    def waiting(self) -> tuple[int, int]:
        """How many requests wait in slots, and how many in the backlog."""
        in_slots = sum(len(sequence.waiting) for sequence in self._holders.values())
        return in_slots, sum(len(sequence.waiting) for sequence in self._backlog)

    def vacant(self, instance: int) -> bool:
        """Whether no sequence holds a slot of the instance."""
        return all(slot.instance != instance for slot in self._holders)

    # -- requests -----------------------------------------------------------------------------

    def open(self, id: Hashable, now: float) -> LiveSequence[T]:
        """Open a sequence, in a free slot or else in the backlog."""
        sequence = self._live[id] = LiveSequence(id, now)
        slot = self._free_slot()
        if slot is None:
            self._backlog[sequence] = None
        else:
            self._assign(slot, sequence)
        return sequence

    def push(
        self, sequence: LiveSequence[T], item: T, now: float, *, end: bool, expires: float = inf
    ) -> None:
        """Queue a request; after the last one, `end`, the id is free for another sequence.

        `expires` counts while the sequence waits for a slot, the earliest of its requests.
        """
        sequence.waiting.append(item)
        self._touch(sequence, now)
        if sequence.slot is None and expires < sequence.expires:
            sequence.expires = expires
            heapq.heappush(self._expiries, (expires, next(self._order), sequence))
        if end:
            self._end(sequence)

    def take_next(self, sequence: LiveSequence[T]) -> T:
        """Take the next request of a ready sequence off its queue."""
        assert sequence.ready
        item = sequence.taken = sequence.waiting.popleft()
        return item

    def put_back(self, sequence: LiveSequence[T], now: float) -> None:
        """Put the taken request back to the head of the queue, to be executed again."""
        assert sequence.taken is not None
        sequence.waiting.appendleft(sequence.taken)
        sequence.taken = None
        self._touch(sequence, now)

    def done(self, sequence: LiveSequence[T], now: float) -> list[LiveSequence[T]]:
        """Finish the taken request."""
        sequence.taken = None
        self._touch(sequence, now)
        return self._settle(sequence)

    # -- ends ---------------------------------------------------------------------------------

    def end(self, sequence: LiveSequence[T]) -> list[LiveSequence[T]]:
        """End the sequence after its queued requests."""
        self._end(sequence)
        return self._settle(sequence)

    def cut(
        self, sequence: LiveSequence[T], item: T | None = None
    ) -> tuple[list[T], list[LiveSequence[T]]]:
        """End the sequence before `item`, or before its queue; also returns what was removed."""
        kept = len(sequence.waiting) if item is not None else 0
        if item is not None:
            kept = sequence.waiting.index(item)
        dropped = [sequence.waiting.pop() for _ in range(len(sequence.waiting) - kept)]
        return dropped[::-1], self.end(sequence)

    def reap(self, before: float, now: float) -> list[LiveSequence[T]]:
        """End the sequences that were idle since `before`; one with open requests is touched."""
        assigned: list[LiveSequence[T]] = []
        while self._live and (oldest := next(iter(self._live.values()))).touched <= before:
            if oldest.waiting or oldest.taken is not None:
                self._touch(oldest, now)
            else:
                assigned += self.end(oldest)
        return assigned

    def untouched_since(self) -> float:
        """Time of the last request of the longest idle sequence; `inf` without any."""
        return next(iter(self._live.values())).touched if self._live else inf

    def expired(self, now: float) -> list[T]:
        """End the sequences that have timed out in the backlog; returns their requests."""
        dropped: list[T] = []
        while self.next_expiry() <= now:
            sequence = heapq.heappop(self._expiries)[2]
            dropped += self.cut(sequence)[0]
        return dropped

    def next_expiry(self) -> float:
        """Time of the next timeout in the backlog; `inf` for never."""
        while self._expiries and self._is_stale(self._expiries[0]):
            heapq.heappop(self._expiries)
        return self._expiries[0][0] if self._expiries else inf

    # -- instances ----------------------------------------------------------------------------

    def add(self, slots: Iterable[Slot]) -> None:
        """Add slots of an instance that counts as down until it is restored."""
        for slot in slots:
            self._parked.setdefault(slot.instance, []).append(slot)

    def close(self, instance: int) -> None:
        """Assign no slot of the instance any more; sequences that hold one keep it."""
        self._parked.setdefault(instance, [])

    def remove(self, instance: int) -> None:
        """Remove the slots of an instance that is closed and vacant."""
        self._parked.pop(instance, None)
        self._free = sorted(slot for slot in self._free if slot.instance != instance)

    def lose(self, instance: int) -> list[tuple[LiveSequence[T], list[T]]]:
        """End the sequences of an instance that is down, and close its slots until `restore`.

        Returns each sequence with its queued requests.
        """
        self.close(instance)
        held = [(s, q) for s, q in self._holders.items() if s.instance == instance]
        return [(sequence, self.cut(sequence)[0]) for _, sequence in held]

    def restore(self, instance: int) -> list[LiveSequence[T]]:
        """Open the slots of an instance that is up."""
        for slot in self._parked.pop(instance, ()):
            heapq.heappush(self._free, slot)
        return self._refill()

    # -- inside -------------------------------------------------------------------------------

    def _touch(self, sequence: LiveSequence[T], now: float) -> None:
        sequence.touched = now
        if not sequence.ended:
            self._live.move_to_end(sequence.id)

    def _end(self, sequence: LiveSequence[T]) -> None:
        if not sequence.ended:
            sequence.ended = True
            del self._live[sequence.id]

    def _settle(self, sequence: LiveSequence[T]) -> list[LiveSequence[T]]:
        """Release the slot of an ended sequence without open requests."""
        if not sequence.ended or sequence.waiting or sequence.taken is not None:
            return []
        self._backlog.pop(sequence, None)
        slot, sequence.slot = sequence.slot, None
        if slot is None:
            return []
        del self._holders[slot]
        heapq.heappush(self._free, slot)
        return self._refill()

    def _refill(self) -> list[LiveSequence[T]]:
        """Assign free slots to the backlog, oldest first."""
        assigned: list[LiveSequence[T]] = []
        while self._backlog and (slot := self._free_slot()) is not None:
            sequence = next(iter(self._backlog))
            del self._backlog[sequence]
            self._assign(slot, sequence)
            assigned.append(sequence)
        return assigned

    def _assign(self, slot: Slot, sequence: LiveSequence[T]) -> None:
        sequence.slot = slot
        self._holders[slot] = sequence

    def _free_slot(self) -> Slot | None:
        while self._free:
            slot = heapq.heappop(self._free)
            if slot.instance not in self._parked:
                return slot
            self._parked[slot.instance].append(slot)
        return None

    def _is_stale(self, expiry: tuple[float, int, LiveSequence[T]]) -> bool:
        """Whether the sequence has a slot by now, has ended, or times out earlier."""
        when, _, sequence = expiry
        return sequence not in self._backlog or sequence.expires != when
