"""The log of an exit: a report every second, of what it waits for then, until it is closed."""

from __future__ import annotations

import asyncio
import logging

import pytest

from fakes import in_virtual_time
from penstock.core.exit_deadline import ExitDeadline
from penstock.server.shutdown_log import ShutdownLog

LOGGER = "penstock.server.shutdown_log"


class Lifecycle:
    """Models that are as busy as the test says."""

    def __init__(self) -> None:
        self.busy: dict[tuple[str, int], int] = {("m", 1): 2}
        self.models = 1

    def in_flight(self) -> dict[tuple[str, int], int]:
        return self.busy

    def live(self) -> int:
        return self.models

    def loads(self) -> int:
        return 0


def _log(lifecycle: Lifecycle) -> ShutdownLog:
    return ShutdownLog(lifecycle, ExitDeadline(30))  # type: ignore[arg-type]


def _reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The reports since the last call, without the seconds that are left."""
    found = [r.message for r in caplog.records if r.name == LOGGER and "Found" in r.message]
    caplog.clear()
    return [message.partition(": ")[2] for message in found]


BUSY = "Found 1 model versions that have in-flight inferences"
IDLE = "Found 0 model versions that have in-flight inferences"
LIVE = "Found %d live models and 0 in-flight non-inference requests"


@pytest.mark.contract("W-06")
@in_virtual_time
async def test_every_second_of_an_exit_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    lifecycle = Lifecycle()
    log = _log(lifecycle)
    assert _reports(caplog) == [BUSY]
    await asyncio.sleep(2.5)
    assert _reports(caplog) == [BUSY, BUSY]
    lifecycle.busy = {}
    await asyncio.sleep(1)
    assert _reports(caplog) == [IDLE]
    log.frontends_closed()
    assert _reports(caplog) == [LIVE % 1]
    lifecycle.models = 0
    await asyncio.sleep(1)
    assert _reports(caplog) == [LIVE % 0]
    log.close()


@in_virtual_time
async def test_models_that_are_busy_when_the_frontends_close_are_reported_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    lifecycle = Lifecycle()
    log = _log(lifecycle)
    log.frontends_closed()
    await asyncio.sleep(1.5)
    assert _reports(caplog) == [BUSY, BUSY]
    lifecycle.busy = {}
    await asyncio.sleep(1)
    assert _reports(caplog) == [IDLE, LIVE % 1]
    log.close()


@in_virtual_time
async def test_a_closed_log_reports_no_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    log = _log(Lifecycle())
    await asyncio.sleep(1.5)
    log.close()
    _reports(caplog)
    await asyncio.sleep(5)
    assert _reports(caplog) == []


@pytest.mark.contract("W-06")
@in_virtual_time
async def test_what_is_in_flight_is_named_when_it_changes_and_every_third_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    lifecycle = Lifecycle()
    log = _log(lifecycle)
    await asyncio.sleep(4.5)
    lifecycle.busy = {("m", 1): 1}
    await asyncio.sleep(1)
    log.close()
    lines = [r.message for r in caplog.records if r.name == LOGGER]
    details = [line for line in lines if line.startswith("In flight: ")]
    two, one = (f"In flight: model 'm' version 1: {number}" for number in (2, 1))
    assert details == [two, two, one]
