"""For whom the code at hand runs: the permit of the call, in the context of its task.

Without a call, nothing is seen: what forgets to say for whom it asks is answered as a stranger.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token

from penstock.access.globs import Glob
from penstock.access.policy import Permit

NO_PERMIT = Permit("", ())
SERVER_ITSELF = Permit("", (Glob("*"),))
"""The permit of the server itself, for what it asks on its own account, as at its start."""

_CURRENT: ContextVar[Permit] = ContextVar("penstock.access", default=NO_PERMIT)


def current_permit() -> Permit:
    """The permit of the call at hand."""
    return _CURRENT.get()


def current_caller() -> str:
    """The name of the caller at hand; empty for nobody."""
    return _CURRENT.get().caller


def enter(permit: Permit) -> Token[Permit]:
    """From here on, this context runs for the holder of a permit. `leave` ends that."""
    return _CURRENT.set(permit)


def leave(token: Token[Permit]) -> None:
    """Undo `enter`, which a coroutine in a task of its own need not."""
    _CURRENT.reset(token)


@contextmanager
def acting_as(permit: Permit) -> Iterator[None]:
    """Run a block for the holder of a permit."""
    token = enter(permit)
    try:
        yield
    finally:
        leave(token)
