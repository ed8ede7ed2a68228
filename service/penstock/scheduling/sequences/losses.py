"""Sequences that were lost with their instance, so that their clients are told why."""

from __future__ import annotations

from collections.abc import Hashable

from penstock.core.errors import UnavailableError


class Losses:
    """Which sequences went, and with which instance."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._lost: dict[Hashable, tuple[float, str]] = {}

    def add(self, id: Hashable, instance: str, now: float) -> UnavailableError:
        """The sequence was lost; what to answer its requests."""
        text = (
            f"sequence {id} of model '{self._model}' was lost when instance '{instance}' went"
            " down; it has to be started again"
        )
        self._lost.pop(id, None)  # in order of time
        self._lost[id] = now, text
        return UnavailableError(text)

    def of(self, id: Hashable) -> UnavailableError | None:
        """Why a sequence is not known any more, if it was lost."""
        found = self._lost.get(id)
        return None if found is None else UnavailableError(found[1])

    def forget(self, id: Hashable) -> None:
        """The sequence was started again."""
        self._lost.pop(id, None)

    def expire(self, before: float) -> None:
        """Forget what was lost before that time."""
        while self._lost and (oldest := next(iter(self._lost.items())))[1][0] <= before:
            del self._lost[oldest[0]]
