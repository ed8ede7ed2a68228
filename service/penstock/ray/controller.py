"""The actors of a fleet: one that keeps the replicas, and one for each replica.

The controller decides nothing by itself: `ReplicaSet` says what starts and ends, `Decider` how
many there should be. Ray decides on which node a replica runs, and ends it with that node.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util import list_named_actors

from penstock.ray.changes import Change, ChangeLog, NotAppliedError, replay
from penstock.ray.endpoints import EndpointFiles, replace
from penstock.ray.replica_set import Action, Address, Pace, ReplicaSet, Start, Stop
from penstock.ray.scaling import Decider, ScalingPolicy
from penstock.ray.server_process import GoneError, Report, ServerProcess, StartError, refused

NAMESPACE = "penstock"
"""Of Ray's names: the controller is `FLEET`, its replicas are `FLEET/replica-1` and so on."""

_TICK_SECONDS = 0.5
_REPORT_SECONDS = 5.0
_MISSES = 3
_STATE = "fleet.json"
_log = logging.getLogger("penstock.ray")


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """What a fleet is started with.

    `arguments` are those of `penstock serve`; `folder` is where the endpoint files are written, on
    the controller's node. `actor_options` are Ray's for a replica (`num_cpus`, `num_gpus`,
    `resources`, `runtime_env` ...). `python` runs the servers, by default the actors' own;
    `metadata` goes with each call that is made to them. `exit_seconds` is what a server gets to
    answer what is in flight.
    """

    arguments: Sequence[str]
    folder: str
    name: str = "fleet"
    scaling: ScalingPolicy = field(default_factory=ScalingPolicy)
    pace: Pace = field(default_factory=Pace)
    actor_options: Mapping[str, Any] = field(default_factory=dict)
    python: str = ""
    metadata: Sequence[tuple[str, str]] = ()
    exit_seconds: float = 40.0

    def __post_init__(self) -> None:
        if reason := refused(self.arguments):
            raise ValueError(reason)
        if "/" in self.name:
            raise ValueError("the name of a fleet has no slash")


class ReplicaActor:
    """A server on the node where Ray has put this actor."""

    def __init__(self, settings: FleetSettings, arguments: Sequence[str], generation: int) -> None:
        node = ray.get_runtime_context().get_node_id()
        self._server = ServerProcess(
            arguments, _address(node), node, settings.python, settings.metadata
        )
        self._generation = generation
        self._started: asyncio.Task[Address] | None = None

    async def generation(self) -> int:
        """The update that it was started by."""
        return self._generation

    async def start(self) -> Address:
        """Where it listens, once it is ready; asked again, the same."""
        if self._started is None:
            self._started = asyncio.create_task(self._server.start())
        return await self._started

    async def report(self) -> Report:
        """What it tells."""
        return await self._server.report()

    async def apply(self, change: Change) -> None:
        """Make a change."""
        await self._server.apply(change)

    async def stop(self, seconds: float) -> None:
        """End the server."""
        await self._server.stop(seconds)


class ControllerActor:
    """Keeps a fleet: replicas, endpoint files, and what was changed on all of them."""

    async def __init__(self, settings: FleetSettings) -> None:  # type: ignore[misc]
        self._settings = settings
        self._arguments = list(settings.arguments)
        self._changes = ChangeLog()
        self._decider = Decider(settings.scaling)
        self._replicas = ReplicaSet(settings.scaling.least, settings.pace)
        self._handles: dict[str, Any] = {}
        self._misses: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        self._files = EndpointFiles(Path(settings.folder))
        self._adopting = True
        self._stopping = False
        self._restore()
        await self._adopt()
        self._loop = asyncio.create_task(self._run())

    # -- what is asked of it --------------------------------------------------------------------

    async def change(self, kind: str, message: bytes) -> dict[str, str]:
        """Make a change on every replica that serves, and on those to come.

        What the replicas refused is returned by their names, with the reason; where all refused it,
        it is forgotten. Raises `NotAppliedError` then, with the first one's reason and code.
        """
        change = Change(kind, message)
        async with self._changing:
            handles = {each.name: self._handles[each.name] for each in self._replicas.serving()}
            made = await asyncio.gather(*[_refusal(each, change) for each in handles.values()])
            refusals = {
                name: error for name, error in zip(handles, made, strict=True) if error is not None
            }
            if handles and len(refusals) == len(handles):
                raise next(iter(refusals.values()))
            refused = {name: str(error) for name, error in refusals.items()}
            for name in handles:
                self._replicas.changed(name, str(change), refused.get(name))
            self._changes.record(change)
            self._save()
        await self._report_all()
        self._write_endpoints()
        return refused

    async def update(self, arguments: Sequence[str] | None = None) -> int:
        """Replace each replica by one with these arguments, or with the same: a rolling update.

        Returns the new generation, without waiting for its replicas.
        """
        if arguments is not None:
            if reason := refused(arguments):
                raise ValueError(reason)
            self._arguments = list(arguments)
        self._replicas.renew()
        self._save()
        return self._replicas.generation

    async def scale(self, policy: ScalingPolicy) -> None:
        """Have another policy from now on."""
        self._decider = Decider(policy)
        self._replicas.wanted = policy.bounded(self._replicas.wanted)
        self._save()

    async def status(self) -> dict[str, Any]:
        """The replicas, how many there should be, what was changed, and the last failure."""
        return {
            "wanted": self._replicas.wanted,
            "generation": self._replicas.generation,
            "arguments": list(self._arguments),
            "changes": [str(change) for change in self._changes.net()],
            "last_failure": self._replicas.last_failure,
            "replicas": {
                each.name: {
                    "state": each.state.value,
                    "generation": each.generation,
                    "node": each.address.node if each.address else "",
                    "grpc": f"{each.address.host}:{each.address.grpc}" if each.address else "",
                    "http": f"{each.address.host}:{each.address.http}" if each.address else "",
                    "queue_seconds": each.load.queue_seconds if each.load else None,
                    "tokens": each.load.tokens if each.load else None,
                    "models": list(each.models),
                    "lacks": dict(each.lacks),
                }
                for each in self._replicas.replicas.values()
            },
        }

    async def stop(self) -> None:
        """End every replica, and the loop; the files say that there is none."""
        self._stopping = True
        self._loop.cancel()
        self._files.write([])
        await asyncio.gather(*[self._end(name) for name in list(self._handles)])
        (Path(self._settings.folder) / _STATE).unlink(missing_ok=True)

    # -- the loop -------------------------------------------------------------------------------

    async def _run(self) -> None:
        if self._tasks:  # the adopted ones say where they are, before anything is told of them
            await asyncio.wait(self._tasks, timeout=self._settings.pace.start_seconds)
        self._adopting = False
        while not self._stopping:
            try:
                await self._tick()
            except Exception:  # of Ray or of the disk: the next time may be better
                _log.exception("a turn of the fleet's loop failed")
            await asyncio.sleep(_TICK_SECONDS)

    async def _tick(self) -> None:
        await self._report_all()
        nodes = await asyncio.to_thread(ray.nodes)
        now = monotonic()
        self._replicas.wanted = self._decider.decide(
            now, self._replicas.wanted, self._replicas.loads()
        )
        alive = [node["NodeID"] for node in nodes if node["Alive"]]
        for action in self._replicas.actions(now, alive):
            self._do(action)
        self._write_endpoints()

    def _write_endpoints(self) -> None:
        if not (self._adopting or self._stopping):
            self._files.write(self._replicas.endpoints())

    async def _report_all(self) -> None:
        serving = self._replicas.serving()
        await asyncio.gather(*[self._report(replica.name) for replica in serving])

    async def _report(self, name: str) -> None:
        try:
            async with asyncio.timeout(_REPORT_SECONDS):
                report: Report = await self._handles[name].report.remote()
        except Exception as error:  # of Ray, or of the server that it asks
            self._miss(name, _cause(error))
            return
        self._misses.pop(name, None)
        self._replicas.reported(name, report.models, report.load)

    def _miss(self, name: str, error: Exception) -> None:
        """Forget a replica whose actor or server has ended, or that was silent several times."""
        self._misses[name] = self._misses.get(name, 0) + 1
        if isinstance(error, RayActorError | GoneError) or self._misses[name] >= _MISSES:
            _log.warning("%s is lost: %s", name, _reason(error))
            self._replicas.lost(name, _reason(error), monotonic())
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._misses.pop(name, None)
        if (handle := self._handles.pop(name, None)) is not None:
            ray.kill(handle)

    def _do(self, action: Action) -> None:
        match action:
            case Start(name, generation, avoid):
                try:
                    self._handles[name] = self._create(name, generation, avoid)
                except Exception as error:  # of Ray: the other actions are done all the same
                    _log.warning("%s did not start: %s", name, _reason(error))
                    self._replicas.lost(name, _reason(error), monotonic())
                else:
                    self._spawn(self._await_start(name))
            case Stop(name, at_once=True):
                self._forget(name)
                self._replicas.stopped(name)
            case Stop(name):
                self._spawn(self._end(name))

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _create(self, name: str, generation: int, avoid: frozenset[str]) -> Any:
        options: dict[str, Any] = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
        if avoid:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(sorted(avoid))})"}
        options |= self._settings.actor_options
        actor = ray.remote(ReplicaActor).options(
            name=f"{self._settings.name}/{name}",
            namespace=NAMESPACE,
            lifetime="detached",
            **options,
        )
        return actor.remote(self._settings, self._arguments, generation)

    async def _await_start(self, name: str) -> None:
        """Wait until a replica is ready, and make on it what was changed so far."""
        handle = self._handles[name]
        try:
            address: Address = await handle.start.remote()
            async with self._changing:
                lacks = await replay(self._changes.net(), partial(_apply, handle))
                report: Report = await handle.report.remote()
                self._replicas.ready(name, address, lacks, monotonic())
                self._replicas.reported(name, report.models, report.load)
        except Exception as raised:  # of Ray, or of the server that has just started
            error = _cause(raised)
            _log.warning("%s did not start: %s", name, _reason(error))
            if isinstance(error, StartError):
                self._replicas.failed(name, error.node, _reason(error), monotonic())
            else:
                self._replicas.lost(name, _reason(error), monotonic())
            self._forget(name)

    async def _end(self, name: str) -> None:
        """Let a replica answer what it has in flight, then end its actor."""
        seconds = self._settings.exit_seconds
        with suppress(Exception):  # it has ended, which is what is wanted
            async with asyncio.timeout(2 * seconds + 10):
                await self._handles[name].stop.remote(seconds)
        self._forget(name)
        self._replicas.stopped(name)

    # -- its own restart ------------------------------------------------------------------------

    def _save(self) -> None:
        folder = Path(self._settings.folder)
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "arguments": self._arguments,
            "generation": self._replicas.generation,
            "changes": self._changes.saved(),
            "scaling": asdict(self._decider.policy),
        }
        replace(folder / _STATE, state)

    def _restore(self) -> None:
        """Know what the controller before this one knew, if it ran on this node."""
        file = Path(self._settings.folder) / _STATE
        if not ray.get_runtime_context().was_current_actor_reconstructed or not file.exists():
            return
        state = json.loads(file.read_text("utf-8"))
        self._arguments = state["arguments"]
        self._replicas.generation = state["generation"]
        self._changes = ChangeLog.restored(state["changes"])
        self._decider = Decider(ScalingPolicy(**state["scaling"]))

    async def _adopt(self) -> None:
        """Take over the replicas that run."""
        prefix = f"{self._settings.name}/"
        for named in list_named_actors(all_namespaces=True):
            if named["namespace"] != NAMESPACE or not named["name"].startswith(prefix):
                continue
            name = named["name"].removeprefix(prefix)
            with suppress(ValueError):  # it has ended
                await self._adopt_one(name, ray.get_actor(named["name"], namespace=NAMESPACE))
        adopted = self._replicas.replicas.values()
        self._replicas.wanted = self._decider.policy.bounded(len(adopted))

    async def _adopt_one(self, name: str, handle: Any) -> None:
        try:
            async with asyncio.timeout(_REPORT_SECONDS):
                generation = await handle.generation.remote()
        except (RayError, TimeoutError):  # nobody would end it
            ray.kill(handle)
            return
        self._replicas.adopt(name, generation, monotonic())
        self._handles[name] = handle
        self._spawn(self._await_start(name))


def _address(node: str) -> str:
    """The address by which a node is known to the others."""
    return next(str(n["NodeManagerAddress"]) for n in ray.nodes() if n["NodeID"] == node)


async def _refusal(handle: Any, change: Change) -> NotAppliedError | None:
    """Why a replica has not made a change; `None` if it has."""
    try:
        await _apply(handle, change)
    except NotAppliedError as error:
        return error
    except RayError as error:
        return NotAppliedError(f"it did not answer: {_reason(error)}", "UNAVAILABLE")
    return None


async def _apply(handle: Any, change: Change) -> None:
    try:
        await handle.apply.remote(change)
    except NotAppliedError as error:
        raise _cause(error) from None


def _cause(error: Exception) -> Exception:
    """What an actor raised, rather than Ray's copy of it, whose text is a traceback."""
    return getattr(error, "cause", None) or error


def _reason(error: Exception) -> str:
    return str(_cause(error)).strip() or type(error).__name__
