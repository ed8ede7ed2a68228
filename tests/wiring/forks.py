"""A pytest plugin that runs chosen tests again and again, each time with another wire cut.

All tests are collected once, and each cut is made in a fork: what is imported serves them all.
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock import _wiring  # type: ignore[attr-defined]

_SECONDS = 240.0
"""For the tests of one cut."""
_AT_ONCE = 4
_jobs = Path(os.environ["PENSTOCK_WIRING_JOBS"])


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Make every cut of the file of jobs; a line of outcome for each comes beside it."""
    items = {item.nodeid: item for item in session.items}
    jobs = json.loads(_jobs.read_text())
    workers = [_worker(session, items, jobs[at::_AT_ONCE]) for at in range(_AT_ONCE)]
    for worker in workers:
        os.waitpid(worker, 0)
    return True


def _worker(session: pytest.Session, items: dict[str, pytest.Item], jobs: list[Any]) -> int:
    """A process that makes some of the cuts, one after the other."""
    if child := os.fork():
        return child
    with _jobs.with_suffix(".out").open("a") as out:
        for job in jobs:
            began = time.monotonic()
            noticed = _in_fork(
                session, job, [items[name] for name in job["tests"] if name in items]
            )
            seconds = round(time.monotonic() - began, 1)
            out.write(json.dumps({**job["cut"], "noticed": noticed, "seconds": seconds}) + "\n")
            out.flush()
    os._exit(0)


def _in_fork(session: pytest.Session, job: dict[str, Any], chosen: list[pytest.Item]) -> str:
    """The test that notices the cut, and its error's last line; empty if none does."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        os.close(reading)
        _run(session, job["cut"], chosen, writing)
    os.close(writing)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
    signal.alarm(int(_SECONDS))
    with open(reading) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    signal.alarm(0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return told or "no end"


def _run(
    session: pytest.Session, cut: dict[str, str], chosen: list[pytest.Item], writing: int
) -> None:
    failed = _Failed()
    try:
        os.environ["PENSTOCK_WIRING_CUT"] = json.dumps(cut)
        _wiring.cut(**cut)
        session.config.pluginmanager.register(failed)
        for item, following in zip(chosen, [*chosen[1:], None], strict=True):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failed.text:
                break
    except BaseException as error:
        failed.text = failed.text or f"pytest: {error!r}"
    os.write(writing, (failed.text or "-").encode())
    session.config.hook.pytest_sessionfinish(session=session, exitstatus=0)
    os._exit(0)


class _Failed:
    """The first failure of a run."""

    text = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.text:
            last = report.longreprtext.strip().splitlines()[-1:]
            self.text = f"{report.nodeid} ({report.when}): {' '.join(last)[:200]}"
