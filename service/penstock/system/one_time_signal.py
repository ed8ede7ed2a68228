"""`OneTimeSignal`: a signal whose handler counts once, and then has to be set anew."""

from __future__ import annotations

import ctypes
import signal
import sys

_RESETHAND = 0x80000000
"""SA_RESETHAND: the first signal sets back the system's own action."""


class _Action(ctypes.Structure):
    """`struct sigaction` of Linux, as glibc and musl have it."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * (128 // ctypes.sizeof(ctypes.c_ulong))),
        ("flags", ctypes.c_uint),
        ("restorer", ctypes.c_void_p),
    )


class OneTimeSignal:
    """Takes a signal's present handler from it with the first signal, until `rearm`.

    The system does that, whatever Python is doing: where nobody heeds the first signal, as in a
    loop that hangs in compiled code, the second one ends the process.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._action = _Action()
        self._known = sys.platform == "linux" and signal.getsignal(number) is not signal.SIG_DFL
        if self._known:
            self._sigaction(None, self._action)
            self._action.flags |= _RESETHAND
            self.rearm()

    def rearm(self) -> None:
        """Have the handler called once more."""
        if self._known:
            self._sigaction(self._action, None)

    def _sigaction(self, new: _Action | None, old: _Action | None) -> None:
        given = [None if one is None else ctypes.byref(one) for one in (new, old)]
        if ctypes.CDLL(None, use_errno=True).sigaction(self._number, *given):
            raise OSError(ctypes.get_errno(), "sigaction")
