"""The verbosity of the log, which hot paths look at before they make a verbose line."""

from __future__ import annotations


class Verbosity:
    """The level of detail in force: 0 for none. Changed by the owner of the log alone."""

    __slots__ = ("level",)

    def __init__(self) -> None:
        self.level = 0


VERBOSITY = Verbosity()
"""That of this process's log (`telemetry.logging`)."""
