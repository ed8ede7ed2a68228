"""The models as OpenAI's API lists them, and their loading and unloading (OA-05 to OA-07)."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final
from urllib.parse import unquote
from weakref import WeakValueDictionary

from penstock.core.errors import InferenceError
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.openai.errors import OpenAiError, error_reply
from penstock.gateway.openai.model_names import ModelNames, unknown_model
from penstock.gateway.replies import PLAIN, Reply, json_reply, reply
from penstock.gateway.router import Target
from penstock.server.server import InferenceServer

_OWNER: Final = "Triton Inference Server"
_NOT_EXPLICIT: Final = "Model load/unload requires --model-control-mode=explicit"
_NOT_READY: Final = "Attached inference engine is not ready for inference requests."


class OpenAiModels:
    """Handlers of `/v1/models` and the paths below it."""

    def __init__(self, server: InferenceServer, names: ModelNames) -> None:
        self._server = server
        self._names = names
        self._created = int(time.time())
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def listed(self, _: HttpCall, __: Target) -> Reply:
        """Every model that is ready and answers on these routes, each with its adapters, and the
        aliases of those."""
        ready = sorted({entry.name for entry in await self._server.index(ready_only=True)})
        speak = await asyncio.gather(*map(self._server.speaks_openai, ready))
        names = [name for name, speaks in zip(ready, speak, strict=True) if speaks]
        adapters = await asyncio.gather(*map(self._adapters, names))
        found = [
            one
            for name, own in zip(names, adapters, strict=True)
            for one in (name, *(self._names.joined(name, adapter) for adapter in own))
        ]
        listed = [self._model(name) for name in found]
        listed += [
            self._model(alias, of)
            for alias, of in sorted(self._names.aliases.items())
            if of in found and alias not in found
        ]
        return json_reply({"object": "list", "data": listed})

    async def _adapters(self, name: str) -> list[str]:
        return await self._server.adapters(name) if self._names.has_adapters else []

    async def one(self, _: HttpCall, target: Target) -> Reply:
        """A model, an adapter of one, or an alias."""
        name = unquote(target.model)
        own = self._names.own_name(name)
        if await self._is_ready(name):
            return json_reply(self._model(name))
        if own != name and await self._is_ready(own):
            return json_reply(self._model(name, own))
        return unknown_model(name).reply()

    async def _is_ready(self, name: str) -> bool:
        """Whether this is the name of a model that is ready, or of an adapter of one."""
        if await self._server.model_ready(name, ""):
            return True
        base, adapter = self._names.split(name)
        return bool(adapter) and adapter in await self._adapters(base)

    def _model(self, name: str, alias_of: str = "") -> dict[str, Any]:
        entry = {"id": name, "object": "model", "created": self._created, "owned_by": _OWNER}
        return entry | {"root": alias_of} if alias_of else entry

    async def load(self, _: HttpCall, target: Target) -> Reply:
        return await self._change(unquote(target.model), load=True)

    async def unload(self, _: HttpCall, target: Target) -> Reply:
        return await self._change(unquote(target.model), load=False)

    async def _change(self, name: str, *, load: bool) -> Reply:
        server = self._server
        if not server.explicit_control:
            return OpenAiError(_NOT_EXPLICIT).reply()
        changing = self._changing.setdefault(name, asyncio.Lock())
        async with changing:  # a second request finds what the first has done
            ready = await server.model_ready(name, "")
            if load and ready:
                return OpenAiError(f"Model '{name}' is already loaded").reply()
            if not load and not ready:
                return unknown_model(name).reply()
            try:
                await (server.load(name, {}) if load else server.unload(name))
            except InferenceError as error:
                return error_reply(error)
        return json_reply(self._model(name) if load else {"status": "success", "model": name})

    async def ready(self, _: HttpCall, __: Target) -> Reply:
        """Readiness, in the form of Triton's front end for OpenAI (OA-09)."""
        try:
            ready = await self._server.ready()
        except InferenceError:
            ready = False
        if ready:
            return reply(content_type=PLAIN)
        return OpenAiError(_NOT_READY).reply()
