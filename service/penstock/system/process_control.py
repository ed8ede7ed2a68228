"""Settings of a process that Linux keeps (`prctl`): whom it dies with, and who may look into it."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def die_with_parent() -> None:
    """Have the kernel kill this process when the server's main thread is gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def hide() -> None:
    """Keep other processes of this user out of this one's memory, files and environment.

    They belong to root in `/proc` from now on, and there are no core dumps. Programs that this
    process starts are not hidden.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> None:
    try:
        ctypes.CDLL(None, use_errno=True).prctl(option, value)
    except (OSError, AttributeError):
        return  # not Linux: the closed link and the reaper end model processes, nothing is hidden
