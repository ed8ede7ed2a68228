"""In what state a version of a model is, and which states may follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.models.serving.loaded_model import Model

UNLOADED = "unloaded"
"""The reason of a version that was unloaded, which is no failure."""


class State(StrEnum):
    """States of a model version, by the names that clients see (X-16)."""

    UNKNOWN = "UNKNOWN"
    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


_NEXT: dict[State, set[State]] = {
    State.UNKNOWN: {State.LOADING},
    State.LOADING: {State.READY, State.UNAVAILABLE},
    State.READY: {State.READY, State.UNLOADING},
    State.UNLOADING: {State.UNAVAILABLE},
    State.UNAVAILABLE: {State.LOADING},
}


def _nobody() -> None:
    """Nobody wants to know."""


@dataclass(slots=True)
class VersionStatus:
    """One version: its state, why it is in it, and the model while it serves.

    `changed` is called after every move.
    """

    state: State = State.UNKNOWN
    reason: str = ""
    model: Model | None = None
    changed: Callable[[], None] = _nobody

    def move(self, to: State, reason: str = "", model: Model | None = None) -> None:
        """Go to the state `to`, serving `model` there."""
        if to not in _NEXT[self.state]:
            raise AssertionError(f"a model version cannot go from {self.state} to {to}")
        self.state, self.reason, self.model = to, reason, model
        self.changed()


@dataclass(slots=True)
class Versions:
    """The versions of one model, and the tasks that unload some of them."""

    statuses: dict[int, VersionStatus] = field(default_factory=dict)
    leaving: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    changed: Callable[[], None] = _nobody

    def status(self, version: int) -> VersionStatus:
        """The status of a version, which is known from now on."""
        return self.statuses.setdefault(version, VersionStatus(changed=self.changed))

    def ready(self) -> dict[int, Model]:
        """The models of the versions that serve, lowest first."""
        return {v: s.model for v, s in sorted(self.statuses.items()) if s.model is not None}

    def latest(self) -> Model | None:
        """The highest version that is ready; asked for every request."""
        latest: Model | None = None
        for status in self.statuses.values():
            model = status.model
            if model is not None and (latest is None or model.version > latest.version):
                latest = model
        return latest

    def complete(self) -> bool:
        """Whether all serve but those that were unloaded; a model of no version does not (W-03)."""
        return bool(self.statuses) and all(
            s.model is not None or s.reason == UNLOADED for s in self.statuses.values()
        )
