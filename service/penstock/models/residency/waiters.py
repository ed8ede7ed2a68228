"""`Waiters`: the calls that wait for loads, and the models that make them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.core.errors import InferenceError


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """A call that waits for a load, made by the models `callers`; and why it alone is refused."""

    refusal: asyncio.Future[InferenceError]
    callers: Set[str] = frozenset()


class Waiters:
    """The calls that wait, by the model that they are for; lives on the event loop.

    `observe` is told the seconds that each has waited, and its trace; `lonely` a model that nobody
    waits for since `patience` seconds.
    """

    def __init__(
        self, observe: Callable[[float, str], None], lonely: Callable[[str], None], patience: float
    ) -> None:
        self._observe = observe
        self._tell_lonely = lonely
        self._patience = patience
        self._waiting: dict[str, set[Waiter]] = {}
        self._lonely: dict[str, asyncio.TimerHandle] = {}

    def of(self, name: str) -> Collection[Waiter]:
        """Those that wait for a model."""
        return self._waiting.get(name, ())

    def callers(self, *names: str) -> set[str]:
        """The models whose calls wait for one of these."""
        waiters = (waiter for name in names for waiter in self.of(name))
        return set[str]().union(*(waiter.callers for waiter in waiters))

    def refuse_callers(self, name: str, error: InferenceError) -> None:
        """Refuse the calls of models that wait for one; those of clients wait on."""
        for waiter in self.of(name):
            if waiter.callers and not waiter.refusal.done():
                waiter.refusal.set_result(error)

    @contextmanager
    def waits(
        self, name: str, callers: Set[str] = frozenset(), trace_id: str = ""
    ) -> Iterator[Waiter]:
        """Count a call that waits for a model; with the last one the patience begins."""
        loop = asyncio.get_running_loop()
        waiter, begin = Waiter(loop.create_future(), callers), time.monotonic()
        self._waiting.setdefault(name, set()).add(waiter)
        if (timer := self._lonely.pop(name, None)) is not None:
            timer.cancel()
        try:
            yield waiter
        finally:
            self._observe(time.monotonic() - begin, trace_id)
            self._waiting[name].remove(waiter)
            if not self._waiting[name]:
                del self._waiting[name]
                self._lonely[name] = loop.call_later(self._patience, self._left, name)

    def _left(self, name: str) -> None:
        del self._lonely[name]
        self._tell_lonely(name)
