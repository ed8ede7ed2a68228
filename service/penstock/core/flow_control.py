"""Flow control of responses: how far a producer may run ahead of its reader."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from penstock.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Window:
    """The limit of unread `responses`, and of the `size` of their tensors in bytes (GP-25).

    One response is always allowed, whatever its size.
    """

    responses: int = 16
    size: int = 64 * 1024

    def __post_init__(self) -> None:
        if self.responses < 1 or self.size < 1:
            raise ConfigError("a response window must allow at least 1 response and 1 byte")

    def at_most(self, responses: int | None) -> Window:
        """The window, with no more than so many responses."""
        return self if responses is None else Window(min(self.responses, responses), self.size)


WINDOW = Window()


class Credit:
    """The credit left in a flow control window: spent by sending, replenished by reading, in order.

    One thread may spend while another replenishes.
    """

    __slots__ = ("_given", "_sizes", "_spent", "_window")

    def __init__(self, window: Window = WINDOW) -> None:
        self._window = window
        self._sizes: deque[int] = deque()
        self._spent = self._given = 0  # each written by one thread

    @property
    def in_flight(self) -> int:
        """The number of responses that were sent and not read."""
        return len(self._sizes)

    @property
    def left(self) -> bool:
        """Whether one more response may be sent."""
        count = len(self._sizes)
        window = self._window
        return not count or (count < window.responses and self._spent - self._given < window.size)

    @property
    def plenty(self) -> bool:
        """Whether half of the window is free: the mark at which a waiting sender resumes."""
        count, window = len(self._sizes), self._window
        enough = 2 * count <= window.responses
        return not count or (enough and 2 * (self._spent - self._given) <= window.size)

    def spend(self, size: int) -> None:
        """A response of `size` bytes was sent."""
        self._spent += size
        self._sizes.append(size)

    def refund(self) -> None:
        """Undo the last `spend`: its response was not sent."""
        self._spent -= self._sizes.pop()

    def replenish(self, count: int) -> None:
        """Release the credit of the oldest `count` responses, which were read."""
        for _ in range(min(count, len(self._sizes))):
            self._given += self._sizes.popleft()
