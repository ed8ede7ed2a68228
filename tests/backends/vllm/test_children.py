"""Processes that an engine has started do not outlive it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock_backends.vllm.children import ChildProcess, descendants, kill_leftovers

FAMILY = """
import subprocess, sys
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """A process and its child, both of which would stay for a minute."""
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        yield parent.pid, child
        parent.kill()


def pids(processes: set[ChildProcess]) -> set[int]:
    return {process.pid for process in processes}


def test_grandchildren_are_found(family: tuple[int, int]) -> None:
    assert set(family) <= pids(descendants(os.getpid()))


def test_a_remaining_process_is_killed(family: tuple[int, int]) -> None:
    remembered = {p for p in descendants(os.getpid()) if p.pid in family}
    os.kill(family[0], 9)  # its child is now an orphan
    assert kill_leftovers(remembered, grace=0.1) == 1
    assert kill_leftovers(remembered, grace=5) == 0


def test_another_process_with_the_same_number_is_left_alone(family: tuple[int, int]) -> None:
    assert kill_leftovers([ChildProcess(family[1], started=1)], grace=0) == 0
    assert family[1] in pids(descendants(os.getpid()))


def test_no_processes_need_no_wait() -> None:
    assert kill_leftovers([]) == 0
