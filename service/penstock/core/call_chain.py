"""Who waits for whom among instances that call other models: no call may close a circle.

What is known is certain: an instance is taken to wait only while it can do nothing else, and a
request to be waiting only for what alone can answer it. So a circle that is found never ends by
itself; one in which somebody may give up is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable


class Caller:
    """An instance that makes requests of its own while it executes; one for each of its lives.

    `call` is the last that it could not go on without.
    """

    __slots__ = ("call", "instance")

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.call: Call | None = None

    def waits_for(self) -> Collection[Wait]:
        """The requests of which one must be answered before it goes on; none if it does go on."""
        return () if self.call is None else self.call.waits


class Call:
    """A request that an instance has made while it executed.

    If it `holds` its caller, that does nothing until the answer is there. `waits` are what it is
    waiting for: itself, or the requests of an ensemble that it asked for.
    """

    __slots__ = ("caller", "holds", "waits")

    def __init__(self, caller: Caller, *, holds: bool = False) -> None:
        self.caller = caller
        self.holds = holds
        self.waits: set[Wait] = set()
        if holds:
            caller.call = self


Pool = Callable[[], Iterable[Caller | None]]
"""The instances that may take a request, as they are now; `None` for one that never waits."""


class Wait:
    """A request that a call waits for, and that one of the `pool` answers.

    `place` is the instance that executes it, once that is known.
    """

    __slots__ = ("_call", "_pool", "place")

    def __init__(self, call: Call, pool: Pool) -> None:
        self._call = call
        self._pool = pool
        self.place: Caller | None = None
        call.waits.add(self)

    def end(self) -> None:
        """The request has been answered, or nobody wants that any more."""
        self._call.waits.discard(self)

    def instances(self) -> Iterable[Caller | None]:
        """Those of which one must go on before the request is answered."""
        return self._pool() if self.place is None else (self.place,)


def circle(call: Call, pool: Pool) -> list[Caller]:
    """Those who all wait for the caller, if the call had to be answered by one of the `pool`.

    Empty when somebody may go on, and answer it.
    """
    met = {call.caller: None}
    waiting = list(pool())
    while waiting:
        instance = waiting.pop()
        if instance in met:
            continue
        if instance is None or not (waits := instance.waits_for()):
            return []
        met[instance] = None
        for wait in waits:
            waiting += wait.instances()
    return list(met)[1:]
