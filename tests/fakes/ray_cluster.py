"""Ray in this process: replicas are objects, whose methods run in the loop of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from penstock.ray.changes import Change
from penstock.ray.replica_set import Address
from penstock.ray.scaling import ReplicaLoad
from penstock.ray.server_process import Report


class RayError(Exception):
    """Ray's own."""


class RayActorError(RayError):
    """The actor has ended."""


class FakeReplica:
    """A replica's actor: it starts when it may, and fails as it is told."""

    def __init__(self, generation: int = 1, may_start: bool = True) -> None:
        self.may_start = asyncio.Event()
        if may_start:
            self.may_start.set()
        self.refusal: Exception | None = None
        self.at_its_end: Callable[[], Awaitable[object]] | None = None
        self.ended = False
        self._generation = generation

    def __getattr__(self, name: str) -> Any:
        """`replica.start.remote()`, as of a handle."""
        return SimpleNamespace(remote=getattr(type(self), f"on_{name}").__get__(self))

    async def on_generation(self) -> int:
        if self.ended:
            raise RayActorError("the actor has ended")
        return self._generation

    async def on_start(self) -> Address:
        await self.may_start.wait()
        return Address("node-a", "10.0.0.1", 1, 2, 3)

    async def on_report(self) -> Report:
        return Report(ReplicaLoad(), ())

    async def on_apply(self, change: Change) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def on_stop(self, seconds: float) -> None:
        if self.at_its_end is not None:
            await self.at_its_end()


class FakeRay:
    """Actors by name, and what a program asks of Ray."""

    def __init__(self) -> None:
        self.replicas: dict[str, FakeReplica] = {}
        self.failures: list[Exception] = []
        """Of the next actors that are to be created."""
        self.restarted = False

    def modules(self) -> dict[str, ModuleType]:
        """What stands in for Ray, and for what comes with it."""
        found = {
            name: ModuleType(name)
            for name in (
                *("ray", "ray.exceptions", "ray.util", "ray.serve"),
                *("starlette", "starlette.requests", "starlette.responses"),
            )
        }
        vars(found["ray"]).update(
            get_runtime_context=lambda: SimpleNamespace(
                was_current_actor_reconstructed=self.restarted
            ),
            nodes=lambda: [{"NodeID": "node-a", "Alive": True}],
            get_actor=lambda name, namespace: self.replicas[name],
            kill=self._kill,
            remote=lambda cls: SimpleNamespace(options=self._options),
            serve=found["ray.serve"],
        )
        vars(found["ray.exceptions"]).update(RayError=RayError, RayActorError=RayActorError)
        vars(found["ray.util"]).update(list_named_actors=self._listed)
        vars(found["starlette.requests"]).update(Request=object)
        names = ("JSONResponse", "Response", "StreamingResponse")
        vars(found["starlette.responses"]).update(dict.fromkeys(names, object))
        return found

    def _options(self, name: str, **options: object) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self._create(name))

    def _create(self, name: str) -> FakeReplica:
        if self.failures:
            raise self.failures.pop(0)
        return self.replicas.setdefault(name, FakeReplica())

    def _kill(self, replica: FakeReplica) -> None:
        self.replicas = {name: each for name, each in self.replicas.items() if each is not replica}

    def _listed(self, all_namespaces: bool) -> list[dict[str, str]]:
        return [{"namespace": "penstock", "name": name} for name in self.replicas]
