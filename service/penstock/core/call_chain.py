"""The wait-for graph of instances that call other models, which finds calls that would deadlock.

It holds certain waits only: an instance counts as waiting while it can do nothing else, and a
request as pending only on instances that alone can answer it. So a cycle that is found never
resolves by itself; one with a member that may time out is not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable


class CallingInstance:
    """A node: an instance that may call models while it executes; a new one after each restart.

    `call` is its latest blocking call, `model` the name of its model.
    """

    __slots__ = ("call", "instance", "model")

    def __init__(self, instance: str, model: str = "") -> None:
        self.instance = instance
        self.model = model
        self.call: NestedCall | None = None

    def waits_for(self) -> Collection[Wait]:
        """Pending requests, one of which must be answered before the instance goes on.

        Empty while it is not blocked.
        """
        return () if self.call is None else self.call.waits


class NestedCall:
    """A call that an instance has made while it executed another request.

    A `blocking` one stops its caller until it is answered. `waits` are the pending requests behind
    it: the call itself, or those of the steps of the ensemble that it called.
    """

    __slots__ = ("blocking", "caller", "waits")

    def __init__(self, caller: CallingInstance, *, blocking: bool = False) -> None:
        self.caller = caller
        self.blocking = blocking
        self.waits: set[Wait] = set()
        if blocking:
            caller.call = self


Candidates = Callable[[], Iterable[CallingInstance | None]]
"""The instances that may execute a request, as of now; `None` for one that never blocks."""


class Wait:
    """An edge: a pending request of a call, which one of the `candidates` answers.

    `executor` is the instance that executes it, once that is known.
    """

    __slots__ = ("_call", "_candidates", "executor")

    def __init__(self, call: NestedCall, candidates: Candidates) -> None:
        self._call = call
        self._candidates = candidates
        self.executor: CallingInstance | None = None
        call.waits.add(self)

    def end(self) -> None:
        """Remove the edge: the request was answered or cancelled."""
        self._call.waits.discard(self)

    def instances(self) -> Iterable[CallingInstance | None]:
        """The instances of which one has to go on before the request is answered."""
        return self._candidates() if self.executor is None else (self.executor,)


def find_cycle(call: NestedCall, candidates: Candidates) -> list[CallingInstance]:
    """The instances that all wait for the caller, if one of the `candidates` had to answer it.

    Empty when one of them can go on, and answer the call.
    """
    met = {call.caller: None}
    waiting = list(candidates())
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
