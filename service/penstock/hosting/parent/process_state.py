"""`ProcessState`: what is known of the process of an instance."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessState:
    """`pid` is `None` while no process serves; `restarts` counts processes after the first."""

    pid: int | None
    restarts: int
