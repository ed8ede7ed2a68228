"""`EngineControl`: commands of operators to one vLLM engine and its adapters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.backend import InvalidRequestError, UnsupportedError, suggestion
from penstock_backends.vllm.adapters import Adapters
from penstock_backends.vllm.engine_calls import EngineCalls
from penstock_backends.vllm.lora import DISABLED, checked_name, checked_path

_MODES = ("abort", "wait", "keep")
_TAGS = ("weights", "kv_cache")

Arguments = Mapping[str, Any]


class EngineControl:
    """Carries out actions, checking their arguments first; raises `InferenceError`."""

    def __init__(
        self, engine: EngineCalls, adapters: Adapters | None, folders: Iterable[Path]
    ) -> None:
        self._engine = engine
        self._adapters = adapters
        self._folders = list(folders)
        self._actions: dict[str, Callable[[Arguments], Awaitable[Any]]] = {
            "sleep": self._sleep,
            "wake": self._wake,
            "pause": self._pause,
            "resume": self._resume,
            "reset-prefix-cache": self._reset_prefix_cache,
            "list-adapters": self._list_adapters,
            "add-adapter": self._add_adapter,
            "remove-adapter": self._remove_adapter,
        }

    async def carry_out(self, action: str, arguments: Arguments) -> Any:
        """Carry out an action; returns its result, as values that JSON has."""
        if action not in self._actions:
            hint = suggestion(action, self._actions)
            raise UnsupportedError(f"vLLM does not know the action '{action}'{hint}")
        return await self._actions[action](arguments)

    async def _sleep(self, arguments: Arguments) -> Any:
        _only(arguments, "level", "mode")
        level = arguments.get("level", 1)
        if level not in (0, 1, 2) or isinstance(level, bool):
            raise InvalidRequestError("argument 'level' must be 0, 1 or 2")
        await self._engine.sleep(level, _mode(arguments))
        return {"asleep": True, "level": level}

    async def _wake(self, arguments: Arguments) -> Any:
        _only(arguments, "tags")
        tags = arguments.get("tags")
        known = isinstance(tags, list) and all(tag in _TAGS for tag in tags)
        if tags is not None and not known:
            raise InvalidRequestError("argument 'tags' must be a list of 'weights' and 'kv_cache'")
        return {"asleep": not await self._engine.wake(tags)}

    async def _pause(self, arguments: Arguments) -> Any:
        _only(arguments, "mode", "clear_cache")
        clear = _flag(arguments, "clear_cache", default=True)
        await self._engine.pause(_mode(arguments), clear_cache=clear)
        return {"paused": True}

    async def _resume(self, arguments: Arguments) -> Any:
        _only(arguments)
        await self._engine.resume()
        return {"paused": False}

    async def _reset_prefix_cache(self, arguments: Arguments) -> Any:
        _only(arguments, "reset_running_requests", "reset_connector")
        running = _flag(arguments, "reset_running_requests", default=False)
        connector = _flag(arguments, "reset_connector", default=False)
        return {"reset": await self._engine.reset_prefix_cache(running, connector)}

    async def _list_adapters(self, arguments: Arguments) -> Any:
        _only(arguments)
        return {"adapters": [] if self._adapters is None else self._adapters.listed()}

    async def _add_adapter(self, arguments: Arguments) -> Any:
        _only(arguments, "name", "path")
        name = checked_name(arguments.get("name"))
        path = checked_path(arguments.get("path"), self._folders)
        await self._registry().add(name, path)
        return {"adapter": name, "path": path}

    async def _remove_adapter(self, arguments: Arguments) -> Any:
        _only(arguments, "name")
        name = str(arguments.get("name"))
        await self._registry().remove(name)
        return {"adapter": name}

    def _registry(self) -> Adapters:
        if self._adapters is None:
            raise InvalidRequestError(DISABLED)
        return self._adapters


def _only(arguments: Arguments, *known: str) -> None:
    """Refuse other arguments by name."""
    for name in arguments:
        if name not in known:
            hint = suggestion(name, known)
            raise InvalidRequestError(f"unknown argument '{name}'{hint}")


def _mode(arguments: Arguments) -> str:
    """The fate of requests in flight: `abort`, `wait` or `keep`."""
    mode = arguments.get("mode", "abort")
    if mode not in _MODES:
        raise InvalidRequestError("argument 'mode' must be 'abort', 'wait' or 'keep'")
    return str(mode)


def _flag(arguments: Arguments, name: str, *, default: bool) -> bool:
    value = arguments.get(name, default)
    if not isinstance(value, bool):
        raise InvalidRequestError(f"argument '{name}' must be true or false")
    return value
