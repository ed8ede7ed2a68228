"""Cores of engines: the server's threads keep off them, while somebody has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from penstock.system.own_cores import OwnCores

PROGRAM = """
import json, os, threading
from penstock.system.own_cores import OwnCores

allowed = os.sched_getaffinity(0)
mine = min(allowed)
others, stop, seen = OwnCores(), threading.Event(), []

def look():
    threads = map(int, os.listdir("/proc/self/task"))
    seen.append(sorted({tuple(sorted(os.sched_getaffinity(thread))) for thread in threads}))

thread = threading.Thread(target=stop.wait)
thread.start()
for change in (others.take, others.take, others.give_back, others.give_back):
    change([mine])
    look()
stop.set()
print(json.dumps(seen))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_every_thread_keeps_off_cores_that_are_taken_until_the_last_gives_them_back() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    assert json.loads(done.stdout) == [[allowed[1:]]] * 3 + [[allowed]]


@pytest.mark.parametrize(
    ("allowed", "wanted", "problem"),
    [
        (range(4), range(1, 4), ""),
        (range(4), range(4), "they leave no core for the server"),
        (range(4), range(2, 6), "core 4 is not one of the server's, 0, 1, 2, 3"),
        (range(3), range(1, 2), "the server has 3 cores; it takes 4 to share them out"),
    ],
)
def test_what_cannot_be_shared_is_told(allowed: range, wanted: range, problem: str) -> None:
    assert OwnCores(allowed).problem(wanted) == problem


def test_engines_together_leave_a_core() -> None:
    cores = OwnCores(range(1000, 1004))  # cores that no machine here has: nothing is bound
    cores._users.update([1000, 1001])
    assert cores.problem([1002, 1003]) == "they leave no core for the server"
    assert cores.problem([1002]) == ""
