"""Signal handlers of the server: `ExitSignals` for SIGINT and SIGTERM, `on_hangup` for SIGHUP."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable

from penstock.system.one_time_signal import OneTimeSignal
from penstock.telemetry.console import write_line


class ExitSignals:
    """SIGINT and SIGTERM: the first begins the graceful exit (W-05), a second ends at once.

    The second one cuts `--exit-timeout-secs` short; Triton ignores it. A loop that hangs heeds
    none, and then the second one of a kind ends the process by the system's own action.
    """

    def __init__(self, end_now: Callable[[], object]) -> None:
        self.stop = asyncio.Event()
        self._end_now = end_now
        self._armed: dict[int, OneTimeSignal] = {}

    def listen(self) -> None:
        """Handle the signals from now on, on the running loop."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._received, number)
            self._armed[number] = OneTimeSignal(number)

    def _received(self, number: int) -> None:
        self._armed[number].rearm()
        if self.stop.is_set():
            write_line(f"Signal ({number}) received again: exiting now.", sys.stdout)
            self._end_now()
        else:
            write_line(f"Signal ({number}) received.", sys.stdout)
            self.stop.set()


def on_hangup(action: Callable[[], object]) -> None:
    """Call `action` at SIGHUP, which otherwise would end the process."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, action)
