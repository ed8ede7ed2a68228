"""The routes of OpenAI's API, with their restrictions (OA-20) and the pages that may ask (CORS).

Models are listed, loaded and unloaded here (OA-05 to OA-07).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote
from weakref import WeakValueDictionary

from penstock.core.errors import InferenceError
from penstock.gateway.call_guard import has_secret
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.json_bodies import JsonBodies
from penstock.gateway.openai.errors import OpenAiError, error_reply
from penstock.gateway.openai.exchanges import ExchangeEndpoint
from penstock.gateway.openai.model_names import ModelNames, unknown_model
from penstock.gateway.replies import PLAIN, Reply, json_reply, reply
from penstock.gateway.router import Route, Target
from penstock.models.residency.residency import ON_DEMAND
from penstock.models.serving.catalog import VersionState
from penstock.server.server import InferenceServer
from penstock.settings import Feature, HttpSettings, OpenAiSettings, restriction_of

Handler = Callable[[HttpCall, Target], Awaitable[Reply | None]]

_ANSWERED: Final = (
    "/v1/(?:chat/completions(?:/batch)?|completions|responses(?:/input_tokens)?|embeddings|rerank"
    "|score|audio/(?:transcriptions|translations)|messages(?:/count_tokens)?)"
    "|/(?:rerank|v2/rerank|score|classify|pooling|tokenize|detokenize)"
    "|/v1/(?:chat/completions|completions|messages|responses)/render|/inference/v1/generate"
)
"""What models answer by their applications, which may not have all of it."""

_RESPONSE: Final = "/v1/responses/[^/]+"

_GET, _POST, _DELETE = ("GET",), ("POST",), ("DELETE",)
_ANY: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


def openai_routes(
    server: InferenceServer, http: HttpSettings, settings: OpenAiSettings, bodies: JsonBodies
) -> list[Route]:
    """The routes; none where the API is off."""
    if not settings.enabled:
        return []
    names = ModelNames(server, settings, tells_aliases=server.access is None)
    exchanges = ExchangeEndpoint(server, http, settings, bodies, names)
    models = OpenAiModels(server, names)
    model = "/v1/models/(?P<model>[^/]+)"
    inference, repository = Feature.INFERENCE, Feature.MODEL_REPOSITORY
    table: list[tuple[str, tuple[str, ...], Handler, Feature]] = [
        (_ANSWERED, _POST, exchanges.answer, inference),
        (_RESPONSE, _GET, exchanges.answer, inference),
        (f"{_RESPONSE}/cancel", _POST, exchanges.answer, inference),
        ("/v1/requests/(?P<action>.+)", _DELETE, exchanges.cancel, Feature.REQUEST_CONTROL),
        ("/v1/models/?", _GET, models.listed, repository),
        (model, _GET, models.one, repository),
        (f"{model}/load", _POST, models.load, repository),
        (f"{model}/unload", _POST, models.unload, repository),
        ("/health/ready", _GET, models.ready, Feature.HEALTH),
        ("/v1(?:/.*)?", _ANY, _unknown, inference),
    ]
    guard = _Guard(settings)
    return [
        Route(path, _ANY, guard.before(handler, methods, feature), feature, refuse=error_reply)
        for path, methods, handler, feature in table
    ]


def restricted(route: Route, feature: Feature, settings: OpenAiSettings) -> Route:
    """A route of another API that is on the port of this one, as one of this group."""
    guarded = _Guard(settings).before(route.handler, route.methods, feature)
    return replace(route, handler=guarded, asked=feature)


def is_answered(path: str) -> bool:
    """Whether requests to a path are given to the model that they name."""
    return re.fullmatch(f"{_ANSWERED}|{_RESPONSE}(?:/cancel)?", path) is not None


async def _unknown(call: HttpCall, _: Target) -> Reply:
    return OpenAiError(f"this server has no {call.path[:200]}", 404).reply()


class _Guard:
    """Refuses other methods, and restricted calls without their header, in OpenAI's form.

    Scripts of allowed web pages may read its answers.
    """

    def __init__(self, settings: OpenAiSettings) -> None:
        self._restrictions = settings.restrictions
        self._origins = AllowedOrigins(settings.allowed_origins)

    def before(self, handler: Handler, methods: Sequence[str], feature: Feature) -> Handler:
        """The handler, behind all checks."""
        needed = restriction_of(feature, self._restrictions)

        async def guarded(call: HttpCall, target: Target) -> Reply | None:
            asked = self._origins.admit(call)
            if asked is not None:
                return asked
            if needed is not None and not has_secret(call, needed):
                text = f"This API is restricted, expecting header '{needed.key}'"
                return OpenAiError(text, 401, code="invalid_auth").reply()
            if call.method not in methods:
                refusal = OpenAiError(f"use {methods[0]}", 405).reply()
                refusal.add_header("allow", ", ".join(methods))
                return refusal
            return await handler(call, target)

        return guarded


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
        """Every model that is ready, or that a call loads, and answers on these routes, each with
        its adapters, and the aliases of those."""
        answers = {VersionState.READY.value, ON_DEMAND}
        entries = await self._server.index()
        ready = sorted({one.name for one in entries if {one.state, one.reason} & answers})
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


_METHODS: Final = "GET, POST, DELETE"
_REMEMBERED: Final = "600"
"""Seconds for which a browser need not ask again."""


class AllowedOrigins:
    """Adds what browsers want to see in answers to the pages of these origins (OA-24)."""

    def __init__(self, origins: Collection[str]) -> None:
        self._origins = frozenset(origins)

    def admit(self, call: HttpCall) -> Reply | None:
        """Mark the answer to a call of an allowed page; the reply where it asks beforehand."""
        origin = call.headers.get("origin", "")
        if not origin or self._origins.isdisjoint((origin, "*")):
            return None
        call.more_fields = [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"*"),
            (b"vary", b"origin"),
        ]
        if call.method != "OPTIONS" or "access-control-request-method" not in call.headers:
            return None
        answer = Reply(204, [], [])
        answer.add_header("access-control-allow-methods", _METHODS)
        answer.add_header("access-control-max-age", _REMEMBERED)
        if asked := call.headers.get("access-control-request-headers"):
            answer.add_header("access-control-allow-headers", asked)
        return answer
