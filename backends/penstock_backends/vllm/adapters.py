"""`Adapters`: the LoRA adapters of one engine, loaded before use and removed after it (VL-13)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from penstock.backend import AlreadyExistsError, InvalidRequestError, NotFoundError

_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
"""Files of an adapter; it has changed since it failed if one's time or size has."""

Stamp = tuple[tuple[int, int] | None, ...]


class LoraEngine(Protocol):
    """The part of an engine that adapters need."""

    async def add_adapter(self, name: str, number: int, path: str) -> Any:
        """Load an adapter; returns what requests name it with.

        Raises `InvalidRequestError` with the reason if it cannot be loaded.
        """

    async def remove_adapter(self, number: int) -> None:
        """Unload an adapter, also one that is loaded in part."""


class Adapter:
    """One adapter: what requests name it with while it is `loaded`, and how many use it."""

    def __init__(self, name: str, path: str, number: int) -> None:
        self.name = name
        self.path = path
        self.number = number
        self.users = 0
        self.used_at = 0
        self.loaded: Any = None
        self.loading: asyncio.Task[None] | None = None
        self.refusal: tuple[Stamp, str] | None = None


class Adapters:
    """The adapters of an engine by name, of which at most `capacity` are loaded.

    The engine itself never loads or evicts one: it would do so in a step, where a broken file ends
    it. An adapter is loaded before its first request, once for all that wait for it; where all
    places are taken, the one that is unused for longest goes, and if all are in use, it waits.
    """

    def __init__(self, engine: LoraEngine, paths: Mapping[str, str], capacity: int) -> None:
        self._engine = engine
        self._capacity = max(capacity, 1)
        self._taken = 0
        self._numbers = itertools.count(1)
        self._uses = itertools.count(1)
        self._times: dict[str, int] = {}
        self._adapters = {name: self._make(name, path) for name, path in paths.items()}
        self._adding: set[str] = set()
        self._changed = asyncio.Event()

    @property
    def names(self) -> list[str]:
        """The adapters that requests may name."""
        return list(self._adapters)

    # -- requests -----------------------------------------------------------------------------

    def find(self, name: str) -> Adapter:
        """The adapter; raises `InvalidRequestError` for an unknown one."""
        if name not in self._adapters:
            raise InvalidRequestError(
                f"LoRA {name} is not supported, we currently support {self.names}"
            )
        return self._adapters[name]

    async def acquire(self, adapter: Adapter) -> Any:
        """Load the adapter, until `release`; returns what requests name it with."""
        adapter.users += 1
        adapter.used_at = next(self._uses)
        try:
            while adapter.loaded is None:
                # Who leaves does not cancel it: others may wait for it, and the engine goes on.
                await asyncio.shield(self._start_loading(adapter))
            return adapter.loaded
        except BaseException:
            self.release(adapter)
            raise

    def release(self, adapter: Adapter) -> None:
        """A request has ended, once for each `acquire` that returned."""
        adapter.users -= 1
        if not adapter.users:
            self._changed.set()

    # -- commands -----------------------------------------------------------------------------

    def listed(self) -> list[dict[str, Any]]:
        """Each adapter with its path, whether it is loaded, and the requests that use it."""
        return [
            {
                "name": one.name,
                "path": one.path,
                "loaded": one.loaded is not None,
                "requests": one.users,
            }
            for one in self._adapters.values()
        ]

    async def add(self, name: str, path: str) -> None:
        """Add an adapter and load it; one that cannot be loaded is not added."""
        if name in self._adapters or name in self._adding:
            raise AlreadyExistsError(f"LoRA {name} exists already; remove it first")
        self._adding.add(name)
        try:
            adapter = self._make(name, path)
            await self.acquire(adapter)
            self._adapters[name] = adapter
            self.release(adapter)
        finally:
            self._adding.discard(name)

    async def remove(self, name: str) -> None:
        """Remove an adapter: new requests are refused at once, those in flight complete first."""
        adapter = self._adapters.pop(name, None)
        if adapter is None:
            raise NotFoundError(f"LoRA {name} is not one of {self.names}")
        while adapter.users or adapter.loading is not None:
            await self._change()
        if adapter.loaded is not None:
            await self._unload(adapter)

    async def close(self) -> None:
        """Stop loading, as the engine will be stopped."""
        loading = [one.loading for one in self._adapters.values() if one.loading is not None]
        for task in loading:
            task.cancel()
        if loading:
            await asyncio.wait(loading)

    # -- places in the engine -----------------------------------------------------------------

    def _make(self, name: str, path: str) -> Adapter:
        """An adapter with a number that no other ever had."""
        self._times[name] = self._times.get(name, 0) + 1
        return Adapter(name, path, next(self._numbers))

    def _unique(self, adapter: Adapter) -> str:
        """A name for the engine, whose prefix cache takes equal names for the same adapter."""
        times = self._times[adapter.name]
        return adapter.name if times == 1 else f"{adapter.name}#{times}"

    def _start_loading(self, adapter: Adapter) -> asyncio.Task[None]:
        if adapter.loading is None:
            adapter.loading = asyncio.get_running_loop().create_task(self._load(adapter))
            adapter.loading.add_done_callback(partial(self._loading_done, adapter))
        return adapter.loading

    def _loading_done(self, adapter: Adapter, task: asyncio.Task[None]) -> None:
        adapter.loading = None
        self._changed.set()
        if not task.cancelled():
            task.exception()  # so that it counts as seen where all who waited have left

    async def _load(self, adapter: Adapter) -> None:
        stamp = _stamp(adapter.path)
        if adapter.refusal is not None and adapter.refusal[0] == stamp:
            raise InvalidRequestError(adapter.refusal[1])
        await self._take_place()
        try:
            adapter.loaded = await self._engine.add_adapter(
                self._unique(adapter), adapter.number, adapter.path
            )
        except InvalidRequestError as error:
            await self._leave(adapter)
            text = f"LoRA {adapter.name} cannot be loaded from '{adapter.path}': {error.message}"
            adapter.refusal = stamp, text
            raise InvalidRequestError(text) from error
        except BaseException:
            await self._leave(adapter)
            raise

    async def _take_place(self) -> None:
        """Wait for a place, for which another adapter may have to go."""
        while self._taken >= self._capacity:
            idle = [one for one in self._loaded() if not one.users]
            if idle:
                await self._unload(min(idle, key=lambda one: one.used_at))
            else:
                await self._change()
        self._taken += 1

    def _loaded(self) -> list[Adapter]:
        return [one for one in self._adapters.values() if one.loaded is not None]

    async def _unload(self, adapter: Adapter) -> None:
        adapter.loaded = None  # from now on, requests would have it loaded again
        await self._leave(adapter)

    async def _leave(self, adapter: Adapter) -> None:
        """Have the engine forget it, and give its place to others."""
        try:
            await self._engine.remove_adapter(adapter.number)
        finally:
            self._taken -= 1
            self._changed.set()

    async def _change(self) -> None:
        """Wait until an adapter is used less, or has left."""
        self._changed.clear()
        await self._changed.wait()


def _stamp(path: str) -> Stamp:
    """Times and sizes of the files of an adapter; `None` for those that are missing."""
    return tuple(map(_stat, (Path(path) / name for name in _FILES)))


def _stat(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
