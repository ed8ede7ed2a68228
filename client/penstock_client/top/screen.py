"""The live screen: draws a frame when there is news or a key, until it is quit."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rich.console import Console, ConsoleDimensions
from rich.live import Live

from penstock_client.reading.fetch import AnswersFetcher, fetch_page
from penstock_client.reading.kserve import ServerAnswers
from penstock_client.reading.metrics_page import MetricsPage
from penstock_client.top.frame import Frame, make_frame
from penstock_client.top.keys import keys
from penstock_client.top.navigation import Navigation
from penstock_client.top.options import Options
from penstock_client.top.poller import Poller
from penstock_client.top.readings import Readings
from penstock_client.top.terminal import WakeUp, each_key, terminal_size
from penstock_client.top.view import View, make_view

_TICK = 1.0
"""Seconds after which a frame is drawn without news, for the seconds that it shows."""
_LONG = 2.0
"""Seconds after which an answer is late, and the screen says so."""


class Screen:
    """Shows a server: two threads ask its endpoints, the one that runs it takes keys and draws."""

    def __init__(self, options: Options, console: Console) -> None:
        self._options = options
        self._console = console
        self._wake_up = WakeUp()
        self._navigation = Navigation(sort=options.sort)
        self._shown: tuple[Readings[MetricsPage], Readings[ServerAnswers], View] | None = None
        answers = AnswersFetcher(options.http)
        interval, told = options.interval, self._wake_up.call
        self._page = Poller(lambda: fetch_page(options.metrics), interval, told)
        self._answers = Poller(answers.fetch, interval, told)

    def run(self, descriptor: int) -> None:
        """Show frames until `q` is typed at the terminal `descriptor`, or it is gone."""
        pollers = self._page, self._answers
        with (
            each_key(descriptor),
            Live(console=self._console, screen=True, auto_refresh=False) as live,
        ):
            for poller in pollers:
                poller.start()
            try:
                self._show(live, descriptor)
            finally:
                for poller in pollers:
                    poller.stop()

    def _show(self, live: Live, descriptor: int) -> None:
        while not self._navigation.ended:
            frame = self._frame(terminal_size(descriptor))
            live.update(frame.content, refresh=True)
            typed = self._wake_up.wait(descriptor, _TICK)
            if typed is None:
                return
            for key in keys(typed):
                models = [model.key for model in frame.models]
                self._navigation = self._navigation.press(key, models, frame.rows)

    def _frame(self, size: tuple[int, int]) -> Frame:
        options = self._options
        self._console.size = ConsoleDimensions(*size)  # which COLUMNS would fix otherwise
        return make_frame(
            self._view(),
            self._navigation,
            str(options.metrics),
            options.interval,
            time.monotonic(),
            size,
            "  ".join(self._unanswered()),
        )

    def _view(self) -> View:
        """The view of the last readings, made once for all frames that show it."""
        page, answers = self._page.readings, self._answers.readings
        shown = self._shown
        if shown is None or shown[0] is not page or shown[1] is not answers:
            shown = self._shown = page, answers, make_view(page, answers, self._options.models)
        return shown[2]

    def _unanswered(self) -> Iterator[str]:
        """Endpoints whose answer is late, and how late it is."""
        for name, poller in (("metrics", self._page), ("http", self._answers)):
            since = poller.waiting_since
            if since is not None and (waited := time.monotonic() - since) > _LONG:
                yield f"waiting for {name} for {waited:.0f} s"
