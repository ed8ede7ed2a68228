"""How much detail is logged: read by all who log details, changed by the owner of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Verbosity:
    """The level of detail in force: 0 for none. Changed by the owner of the log alone."""

    __slots__ = ("_followers", "level")

    def __init__(self) -> None:
        self.level = 0
        self._followers: list[Callable[[int], None]] = []

    def change(self, level: int) -> None:
        """Log in this detail from now on, and tell those who follow."""
        self.level = level
        for follower in self._followers:
            follower(level)

    @contextmanager
    def followed_by(self, follower: Callable[[int], None]) -> Iterator[None]:
        """Tell of the level, now and whenever it changes, as long as the block runs."""
        self._followers.append(follower)
        follower(self.level)
        try:
            yield
        finally:
            self._followers.remove(follower)


VERBOSITY = Verbosity()
"""That of this process's log (`telemetry.logging`)."""
