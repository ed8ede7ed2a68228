"""Signals to a server whose event loop hangs in code that never lets go of Python's lock."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_HANGING = """
import asyncio, ctypes, sys
import uvloop
from penstock.app.signals import ExitSignals

async def main():
    signals = ExitSignals(lambda: sys.exit(3))
    signals.listen()
    print("listening", flush=True)
    {hang}
    await signals.stop.wait()
    print("stopping", flush=True)
    {then}
    await asyncio.sleep(60)

uvloop.run(main())
"""
_FOR_EVER = "ctypes.PyDLL(None).sleep(60)"


def _start(hang: str = "pass", then: str = "pass") -> subprocess.Popen[str]:
    script = _HANGING.format(hang=hang, then=then)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    return process


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_a_server_whose_loop_hangs(number: signal.Signals) -> None:
    with _start(hang=_FOR_EVER) as process:
        while process.poll() is None:  # those that arrive together count as one
            process.send_signal(number)
    assert process.returncode == -number


@pytest.mark.slow
def test_a_server_that_hangs_while_it_stops_is_ended_by_the_next_signals() -> None:
    with _start(then=_FOR_EVER) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in "12"][-1] == "stopping\n"
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM


@pytest.mark.slow
def test_the_second_signal_of_a_server_that_runs_is_its_own_to_handle() -> None:
    with _start() as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in "12"][-1] == "stopping\n"
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert process.returncode == 3
