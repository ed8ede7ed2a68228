"""A server over a repository on disk, with a scripted version builder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fakes import FakeBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.server.answers import ServerMetadata
from penstock.server.server import InferenceServer


class House:
    """A server over a repository on disk, with a scripted version builder."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.builder = FakeBuilder()
        repository = ModelRepository([path])
        self.lifecycle = ModelLifecycle(repository, self.builder)
        options = {"explicit_control": True, **options}
        self.server = InferenceServer(
            ServerMetadata("penstock", "1.2.3"), repository, self.lifecycle, **options
        )

    async def unload(self, name: str) -> None:
        """Unload, and wait until that is done."""
        await self.server.unload(name)
        await self.lifecycle.wait_unloaded()

    async def started(self, *names: str) -> InferenceServer:
        await self.server.start(names)
        return self.server


async def index(server: InferenceServer, ready_only: bool = False) -> list[str]:
    """The lines of the index."""
    entries = await server.index(ready_only)
    return [f"{e.name} {e.version} {e.state} {e.reason}".strip() for e in entries]


async def later(function: Callable[..., object], *arguments: object) -> object:
    """As the other methods of the facade, which are coroutines."""
    return function(*arguments)
