"""A lifecycle over a repository on disk, with a scripted version builder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeBuilder, make_request, marks, turns
from penstock.core.errors import InferenceError
from penstock.core.request import ANY_VERSION
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository

ALL = "version_policy { all { } }"


class House:
    """A lifecycle over a repository on disk, with a scripted version builder."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.builder = FakeBuilder()
        repository = ModelRepository([path])
        self.lifecycle = ModelLifecycle(repository, self.builder, **options)

    @property
    def states(self) -> dict[int, str]:
        """Every version and its state, with the reason where there is one."""
        return {
            version: f"{status.state}: {status.reason}" if status.reason else status.state.value
            for _, version, status in self.lifecycle.catalog.statuses()
        }

    async def unload(self, name: str = "m") -> None:
        """Unload, and wait until that is done."""
        await self.lifecycle.unload(name)
        await self.lifecycle.wait_unloaded()

    async def ask(self, name: str = "m", version: int = ANY_VERSION) -> tuple[str, list[str]]:
        """Which version answers, and what."""
        stream = self.lifecycle.catalog.find(name, version).infer(make_request("a"))
        return stream.model_version, await marks(stream)

    def refusal(self, name: str = "m", version: int = ANY_VERSION) -> InferenceError:
        with pytest.raises(InferenceError) as refused:
            self.lifecycle.catalog.find(name, version)
        return refused.value

    async def hold_a_request(self, name: str = "m") -> asyncio.Task[list[str]]:
        """A request in flight at the only instance there is so far."""
        task = asyncio.ensure_future(
            marks(self.lifecycle.catalog.find(name, ANY_VERSION).infer(make_request("held")))
        )
        await turns()
        return task
