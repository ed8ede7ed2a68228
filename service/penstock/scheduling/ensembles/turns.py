"""`Turns`: answers of one decoupled step leave in the order in which the step gave theirs."""

from __future__ import annotations

from penstock.core.request import InferenceResponse

MOST_WAVES = 256
"""Answers of one call that may be on their way through later steps; then the step has to wait."""


class Turns:
    """Responses by the number of their wave; those that come early are held."""

    __slots__ = ("_given", "_held", "_next")

    def __init__(self) -> None:
        self._given = 0
        self._next = 0
        self._held: dict[int, InferenceResponse | None] = {}

    @property
    def full(self) -> bool:
        """Whether enough waves are on their way."""
        return self._given - self._next >= MOST_WAVES

    def give(self) -> int:
        """The number of another wave."""
        self._given += 1
        return self._given - 1

    def put(self, number: int, response: InferenceResponse | None) -> list[InferenceResponse]:
        """Take the response of a wave, or that there is none; those whose turn has come."""
        self._held[number] = response
        due: list[InferenceResponse] = []
        while self._next in self._held:
            ready = self._held.pop(self._next)
            self._next += 1
            if ready is not None:
                due.append(ready)
        return due
