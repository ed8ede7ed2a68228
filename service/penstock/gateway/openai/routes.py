"""The routes of OpenAI's API, with their restrictions (OA-20)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.json_bodies import JsonBodies
from penstock.gateway.openai.errors import OpenAiError
from penstock.gateway.openai.exchanges import ExchangeEndpoint
from penstock.gateway.openai.model_names import ModelNames
from penstock.gateway.openai.models import OpenAiModels
from penstock.gateway.openai.origins import AllowedOrigins
from penstock.gateway.replies import Reply
from penstock.gateway.router import Route, Target
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
    names = ModelNames(server, settings)
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
        Route(path, _ANY, guard.before(handler, methods, feature), feature)
        for path, methods, handler, feature in table
    ]


def restricted(route: Route, feature: Feature, settings: OpenAiSettings) -> Route:
    """A route of another API that is on the port of this one, as one of this group."""
    return replace(route, handler=_Guard(settings).before(route.handler, route.methods, feature))


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
            if needed is not None and not needed.admits(call.headers.get(needed.key.lower())):
                text = f"This API is restricted, expecting header '{needed.key}'"
                return OpenAiError(text, 401, code="invalid_auth").reply()
            if call.method not in methods:
                refusal = OpenAiError(f"use {methods[0]}", 405).reply()
                refusal.add_header("allow", ", ".join(methods))
                return refusal
            return await handler(call, target)

        return guarded
