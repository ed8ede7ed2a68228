"""`Recordings`: traced requests of which a model process may still tell what it has recorded."""

from __future__ import annotations

import asyncio

from penstock.core.timeline import Timeline
from penstock.hosting.link.messages import Recorded

PATIENCE = 2.0
"""Seconds in which a process tells what it has recorded of a request that is over here."""


class Recordings:
    """The timelines of requests that a process was sent, by their numbers on the link.

    Their traces end no sooner than the requests do in the process, which tells what it recorded
    before the last response, or, of a request that was cancelled, once it has dropped it. It may
    also announce that it goes on recording after the last response, until it tells that.
    """

    def __init__(self) -> None:
        self._timelines: dict[int, Timeline] = {}
        self._awaited: set[int] = set()
        self._going_on: set[int] = set()

    def begin(self, number: int, timeline: Timeline) -> None:
        """The process is sent a traced request."""
        timeline.trace.hold()
        self._timelines[number] = timeline

    def add(self, header: Recorded) -> None:
        """The process has told what it recorded."""
        number, marks, facts, spans = header
        if (timeline := self._timelines.get(number)) is not None:
            timeline.add_recorded(marks, facts, spans)
            self._going_on.discard(number)
            if number in self._awaited:
                self.end(number)

    def goes_on(self, number: int) -> None:
        """The process will record more after the last response."""
        if number in self._timelines:
            self._going_on.add(number)

    def answered(self, number: int) -> None:
        """The last response has come."""
        if number in self._going_on:
            self._await(number)
        else:
            self.end(number)

    def cancelled(self, number: int) -> None:
        """The process is told that a request is cancelled; it may not know any more, or be slow."""
        if number in self._timelines:
            self._await(number)

    def end(self, number: int) -> None:
        """The process tells no more of a request."""
        self._awaited.discard(number)
        self._going_on.discard(number)
        if (timeline := self._timelines.pop(number, None)) is not None:
            timeline.trace.release()

    def clear(self) -> None:
        """The process is gone."""
        for number in list(self._timelines):
            self.end(number)

    def _await(self, number: int) -> None:
        self._awaited.add(number)
        asyncio.get_running_loop().call_later(PATIENCE, self.end, number)
