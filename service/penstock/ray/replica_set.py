"""The replicas of a fleet: which ones start, which are drained and ended, and in which order.

Nothing here knows Ray, a clock or a process: events come in, actions are asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from penstock.ray.endpoints import Endpoint
from penstock.ray.scaling import ReplicaLoad


class State(Enum):
    """What a replica is at, in this order."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    """The proxies send it nothing new."""
    REMOVED = "removed"
    """The proxies do not know it any more."""
    STOPPING = "stopping"
    """It was told to exit."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast replicas come and go, in seconds, and how many more there may be in an update.

    With a `surge` of 0 an old replica goes before a new one comes.
    """

    drain_seconds: float = 3.0
    removed_seconds: float = 1.0
    start_seconds: float = 900.0
    surge: int = 1

    def __post_init__(self) -> None:
        if min(self.drain_seconds, self.removed_seconds) < 0 or self.start_seconds <= 0:
            raise ValueError("drain_seconds, removed_seconds and start_seconds: none is negative")
        if self.surge < 0:
            raise ValueError("surge must not be negative")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a replica listens, and the node of Ray that it is on."""

    node: str
    host: str
    grpc: int
    http: int
    metrics: int


@dataclass(slots=True)
class Replica:
    """One replica; `generation` counts the updates before it."""

    name: str
    generation: int
    since: float
    state: State = State.STARTING
    address: Address | None = None
    load: ReplicaLoad | None = None
    models: tuple[str, ...] = ()
    lacks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    """Start a replica, on none of these nodes."""

    name: str
    generation: int
    avoid: frozenset[str]


@dataclass(frozen=True, slots=True)
class Stop:
    """End a replica: at once, where it never served or is lost, else with what it has in flight."""

    name: str
    at_once: bool = False


Action = Start | Stop

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0
_FIRST_AVOIDED, _LONGEST_AVOIDED = 30.0, 1800.0


class ReplicaSet:
    """All replicas, the number that should be, and failures so far."""

    def __init__(self, wanted: int, pace: Pace | None = None) -> None:
        self.wanted = wanted
        self.generation = 1
        self.replicas: dict[str, Replica] = {}
        self.last_failure = ""
        self._pace = pace or Pace()
        self._count = 0
        self._failed = 0  # starts in a row
        self._not_before = 0.0
        self._avoided: dict[str, tuple[float, int]] = {}  # node -> until when, failures
        self._stops: list[Stop] = []

    # -- what happens ---------------------------------------------------------------------------

    def renew(self) -> None:
        """Replace every replica by a new one, one after the other: a rolling update."""
        self.generation += 1
        self._failed, self._not_before = 0, 0.0
        self._avoided.clear()

    def adopt(self, name: str, generation: int, now: float) -> None:
        """Know a replica from before this process; it still has to say that it serves."""
        self.replicas[name] = Replica(name, generation, now)
        self.generation = max(self.generation, generation)
        self._count = max(self._count, int(name.rpartition("-")[2]))

    def ready(self, name: str, address: Address, lacks: Mapping[str, str], now: float) -> None:
        """It serves, with all changes but those that it lacks; nothing if it goes by now."""
        replica = self.replicas.get(name)
        if replica is not None and replica.state is State.STARTING:
            replica.state, replica.since = State.READY, now
            replica.address, replica.lacks = address, lacks
            self._failed = 0
            self._avoided.pop(address.node, None)

    def reported(self, name: str, models: tuple[str, ...], load: ReplicaLoad) -> None:
        """What it has loaded, and what it bears."""
        if replica := self.replicas.get(name):
            replica.models, replica.load = models, load

    def changed(self, name: str, change: str, reason: str | None) -> None:
        """It has made a change, or lacks it for this reason."""
        if replica := self.replicas.get(name):
            lacks = {each: why for each, why in replica.lacks.items() if each != change}
            replica.lacks = lacks if reason is None else {**lacks, change: reason}

    def lost(self, name: str, reason: str, now: float) -> None:
        """It has ended, or nobody reaches it: it is gone, and another one takes its place."""
        replica = self.replicas.pop(name, None)
        if replica is None or replica.state is State.STOPPING:
            return
        self.last_failure = f"{name}: {reason}"
        if replica.state is State.STARTING:
            self._delay(now)

    def failed(self, name: str, node: str, reason: str, now: float) -> None:
        """It could not start on this node, where no other one starts for a while."""
        if self.replicas.pop(name, None) is None:
            return
        self.last_failure = f"{name}, on node {node or 'unknown'}: {reason}"
        self._delay(now)
        if node:
            failures = self._avoided.get(node, (0.0, 0))[1]
            wait = min(_FIRST_AVOIDED * 2**failures, _LONGEST_AVOIDED)
            self._avoided[node] = (now + wait, failures + 1)

    def _delay(self, now: float) -> None:
        self._not_before = now + min(_FIRST_WAIT * 2**self._failed, _LONGEST_WAIT)
        self._failed += 1

    def stopped(self, name: str) -> None:
        """It has exited."""
        self.replicas.pop(name, None)

    # -- what is to be done ---------------------------------------------------------------------

    def actions(self, now: float, nodes: Collection[str] = ()) -> list[Action]:
        """What is to be done now; those that go are further than before with each call.

        `nodes` are those of the cluster that live: where replicas failed to start on all of them,
        none is avoided.
        """
        self._drain_surplus(now)
        return [*self._advance(now), *self._starts(now, nodes)]

    def _in(self, *states: State) -> list[Replica]:
        return [replica for replica in self.replicas.values() if replica.state in states]

    def _drain_surplus(self, now: float) -> None:
        while (replica := self._surplus()) is not None:
            serves = replica.state is State.READY
            self._move(replica, State.DRAINING if serves else State.STOPPING, now)

    def _surplus(self) -> Replica | None:
        """One too many: one of before the update, or else the youngest.

        One that serves goes only where enough others do.
        """
        staying = self._in(State.STARTING, State.READY)
        old = [replica for replica in staying if replica.generation != self.generation]
        if not old and len(staying) <= self.wanted:
            return None
        for replica in (old or staying)[::-1]:
            if replica.state is State.STARTING:
                return replica
        if not old:
            return staying[-1]
        needed = self.wanted - (not self._pace.surge and self._is_calm())
        return old[0] if len(self._in(State.READY)) > needed else None

    def _is_calm(self) -> bool:
        """Whether nothing comes and nothing goes."""
        return len(self._in(State.READY)) == len(self.replicas)

    def _move(self, replica: Replica, state: State, now: float) -> None:
        replica.state, replica.since = state, now
        if state is State.STOPPING:
            self._stops.append(Stop(replica.name, at_once=replica.address is None))

    def _advance(self, now: float) -> list[Action]:
        """Those that go, a step further once its time is over."""
        for replica in self.replicas.values():
            waited = now - replica.since
            if replica.state is State.STARTING and waited >= self._pace.start_seconds:
                self.last_failure = f"{replica.name}: it was not ready in time"
                self._delay(now)
                self._move(replica, State.STOPPING, now)
            elif replica.state is State.DRAINING and waited >= self._pace.drain_seconds:
                self._move(replica, State.REMOVED, now)
            elif replica.state is State.REMOVED and waited >= self._pace.removed_seconds:
                self._move(replica, State.STOPPING, now)
        stops, self._stops = self._stops, []
        return list[Action](stops)

    def _starts(self, now: float, nodes: Collection[str]) -> list[Action]:
        staying = self._in(State.STARTING, State.READY)
        new = [replica for replica in staying if replica.generation == self.generation]
        surge = self._pace.surge if len(new) < len(staying) else 0
        missing = min(self.wanted - len(new), self.wanted + surge - len(staying))
        if missing <= 0 or now < self._not_before:
            return []
        if self._failed:
            missing = 1 - len(self._in(State.STARTING))  # one tries it out
        return [self._start(now, nodes) for _ in range(missing)]

    def _start(self, now: float, nodes: Collection[str]) -> Action:
        self._count += 1
        name = f"replica-{self._count}"
        self.replicas[name] = Replica(name, self.generation, now)
        avoid = {node for node, (until, _) in self._avoided.items() if until > now}
        if avoid >= set(nodes):
            avoid = set()
        return Start(name, self.generation, frozenset(avoid))

    # -- what there is --------------------------------------------------------------------------

    def endpoints(self) -> list[Endpoint]:
        """What proxies are told."""
        return [
            Endpoint(
                replica.name,
                replica.address.host,
                replica.address.grpc,
                replica.address.http,
                replica.models,
                replica.state is State.DRAINING,
            )
            for replica in self._in(State.READY, State.DRAINING)
            if replica.address is not None
        ]

    def serving(self) -> list[Replica]:
        """Those that get requests."""
        return self._in(State.READY)

    def loads(self) -> list[ReplicaLoad]:
        """What those bear that serve and have told it."""
        return [replica.load for replica in self.serving() if replica.load is not None]
