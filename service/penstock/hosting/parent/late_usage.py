"""`LateUsage`: tokens that a model process reports of requests that were cancelled here."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from penstock.core.request import ReportUsage


class LateUsage:
    """Reports of tokens of the `MOST` latest cancelled requests, by their numbers on the link.

    The process reports what it had made of a request when it learns that the client has left. It
    learns that between two steps of its engine, which may take seconds, and of a request that it
    had not begun with, it reports nothing.
    """

    MOST: Final = 4096
    """More than an engine runs at once, so that those cancelled in one step are all among them."""

    def __init__(self) -> None:
        self._reports: OrderedDict[int, ReportUsage] = OrderedDict()

    def cancelled(self, number: int, report: ReportUsage) -> None:
        """The process is told that a request is cancelled."""
        self._reports[number] = report
        if len(self._reports) > self.MOST:
            self._reports.popitem(last=False)

    def add(self, number: int, prompt: int, cached: int, generated: int) -> None:
        """The process has reported tokens of a request that is not in flight."""
        if (report := self._reports.get(number)) is not None:
            report(prompt, cached, generated)

    def clear(self) -> None:
        """The process is gone."""
        self._reports.clear()
