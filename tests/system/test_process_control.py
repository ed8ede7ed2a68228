"""A process that hides from others of its user."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Both without the capabilities by which root looks into everything.
_DROPPED = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
# DAC_OVERRIDE, DAC_READ_SEARCH, SYS_PTRACE, SYS_ADMIN, PERFMON
for capability in (1, 2, 19, 21, 38):
    libc.prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], *sys.argv[2:]])
"""
_HIDING = """
import sys
from penstock.system.process_control import hide
if sys.argv[1] == "hide":
    hide()
print("ready", flush=True)
input()
"""
_LOOKING = """
import os, sys
os.close(os.open(f"/proc/{sys.argv[1]}/{sys.argv[2]}", os.O_RDONLY))
"""


def _looked(how: str, name: str) -> int:
    """The status of one who opens a file of a process that hides, or stays as it is."""
    command = [sys.executable, "-c", _DROPPED]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, _HIDING, how], stdin=pipe, stdout=pipe) as hiding:
        assert hiding.stdin is not None
        assert hiding.stdout is not None
        hiding.stdout.readline()
        looking = [*command, _LOOKING, str(hiding.pid), name]
        status = subprocess.run(looking, stderr=subprocess.DEVNULL).returncode
        hiding.stdin.write(b"\n")
    return status


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fd/0", "environ", "mem"])
def test_no_other_process_of_the_user_looks_into_one_that_hides(name: str) -> None:
    assert [_looked("stay", name), _looked("hide", name)] == [0, 1]
