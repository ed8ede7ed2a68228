"""`LiveSequence`: one sequence, and the `Slot` that it may have."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from penstock.core.tensor import Tensor

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """Room for one sequence: `number` is the row in batches of that instance.

    In order of their numbers, so that sequences spread over the instances.
    """

    number: int
    instance: int


class LiveSequence(Generic[T]):
    """One sequence: its slot once it has one, what waits, and the one request that is under way.

    `ended` once no more requests belong to it. `state` are the tensors that the server keeps
    for it. `expires` is when those that wait for a slot give up.
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
        """Whether its next request can be taken."""
        return self.slot is not None and self.taken is None and bool(self.waiting)
