"""Clients that leave, in every way and at every moment, leave nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from harness.leaks import LeakChecker
from harness.serving import Served

_PROGRAM = Path(__file__).parents[1] / "harness" / "cancelling.py"
_COUNT, _IN_FLIGHT = 700, 48


def _leave(server: Served, count: int) -> dict[str, int]:
    command = [sys.executable, str(_PROGRAM), server.grpc, str(count), str(_IN_FLIGHT)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=240)
    outcomes: dict[str, int] = json.loads(done.stdout)
    return outcomes


def _strange(outcomes: dict[str, int]) -> list[str]:
    """Ends that no client has asked for; the client library's own trouble is not ours."""
    usual = "left", "CANCELLED", "DEADLINE_EXCEEDED", "INTERNAL Internal error from Core"
    return [name for name in outcomes if not name.endswith(usual)]


def _page(server: Served) -> str:
    with urllib.request.urlopen(server.metrics) as answer:
        return str(answer.read().decode())


@pytest.mark.contract("GP-21", "GP-22", "GP-23", "GP-20", "VL-14", "CC-13")
def test_clients_that_leave_leave_nothing_behind(server: Served) -> None:
    checker = LeakChecker(server.process.pid, server.metrics)
    _leave(server, 100)  # threads and connections that are made once
    before = checker.at_rest()
    outcomes = _leave(server, _COUNT)
    assert sum(outcomes.values()) == _COUNT
    assert _strange(outcomes) == []
    assert checker.leaks(before) == {}
    for phase in ("queued", "executing", "streaming"):
        assert f'phase="{phase}"' in _page(server)
