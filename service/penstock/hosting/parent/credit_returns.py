"""`CreditReturns`: tells a model process how many responses readers have taken."""

from __future__ import annotations

import asyncio

from penstock.hosting.link.link import Link
from penstock.hosting.link.messages import Kind


class CreditReturns:
    """Counts responses that were taken, and sends them as credit once per turn of the loop."""

    __slots__ = ("_link", "_loop", "_taken")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._link: Link | None = None
        self._taken: dict[int, int] = {}

    def attach(self, link: Link) -> None:
        """Send by the link to a process that has just started."""
        self._loop = asyncio.get_running_loop()
        self._link = link

    def detach(self) -> None:
        """The process is gone: drop the credit that was to be returned."""
        self._link = None

    def take(self, number: int, count: int) -> None:
        """The reader of the request with this number has taken responses."""
        if not self._taken and self._loop is not None:
            self._loop.call_soon(self._send)
        self._taken[number] = self._taken.get(number, 0) + count

    def _send(self) -> None:
        taken, self._taken = self._taken, {}
        if self._link is not None:
            self._link.send(Kind.TAKEN, list(taken.items()))
