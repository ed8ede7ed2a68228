"""The HTTP router: matches paths as sent, checks restrictions, turns errors into replies."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.core.errors import InferenceError, InternalError, request_prefix, shortened
from penstock.core.log_fields import request_fields
from penstock.core.log_throttle import log_fault
from penstock.core.verbosity import VERBOSITY
from penstock.gateway.replies import JSON, PLAIN, Refusal, error_reply, refusal
from penstock.gateway.request_scope import REQUEST
from penstock.settings import Feature, Restriction

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """The parameters in a path, such as the model's name; empty where absent."""

    model: str = ""
    version: str = ""
    repository: str = ""
    region: str = ""
    action: str = ""
    adapter: str = ""


Handler = Callable[[Request, Target], Awaitable[ASGIApp]]


@dataclass(frozen=True, slots=True)
class Route:
    """A path pattern, whose groups are fields of `Target`, and its handler.

    `content_type` is that of errors that the handler raises.
    """

    path: str
    methods: Sequence[str]
    handler: Handler
    feature: Feature
    content_type: str = JSON


class Router:
    """The ASGI application; the first route that matches the path is used (H-25, H-26)."""

    def __init__(self, routes: Sequence[Route], restrictions: Sequence[Restriction] = ()) -> None:
        self._routes = [(re.compile(route.path), route) for route in routes]
        self._restrictions = {
            feature: restriction for restriction in restrictions for feature in restriction.features
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            answer = await self._answer(request)
        except ClientDisconnect:
            return
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> ASGIApp:
        # Names are compared as sent: the protocol has no percent encoding.
        path = request.scope["raw_path"].decode("utf-8", "surrogateescape")
        logger.debug("HTTP request: %s %s", request.method, path)
        for pattern, route in self._routes:
            if found := pattern.fullmatch(path):
                answer = await self._respond(request, route, _target(found))
                if VERBOSITY.level and route.feature is Feature.INFERENCE:
                    _log_refusal(request, answer)
                return answer
        return error_reply("Not Found", HTTPStatus.NOT_FOUND, PLAIN)

    async def _respond(self, request: Request, route: Route, target: Target) -> ASGIApp:
        needed = self._restrictions.get(route.feature)
        if needed is not None and request.headers.get(needed.key) != needed.value:
            text = f"This API is restricted, expecting header '{needed.key}'"
            return error_reply(text, HTTPStatus.FORBIDDEN, PLAIN)
        if request.method not in route.methods:
            return error_reply(
                "Method Not Allowed", HTTPStatus.METHOD_NOT_ALLOWED, route.content_type
            )
        try:
            return await route.handler(request, target)
        except InferenceError as error:
            return refusal(error, route.content_type)
        except ClientDisconnect:
            raise
        except Exception as error:  # a fault of ours: the client gets an error, the log the details
            inference = request.scope.get(REQUEST)
            fields = None if inference is None else request_fields(inference)
            path = shortened(request.url.path)
            log_fault(logger, error, "%s %s failed", request.method, path, extra=fields)
            return refusal(InternalError("unexpected error, see the server's log"))


def _log_refusal(request: Request, answer: ASGIApp) -> None:
    """A verbose line about an inference that fails, as Triton's (contract L-08)."""
    if isinstance(answer, Refusal):
        inference = request.scope.get(REQUEST)
        prefix = "" if inference is None else request_prefix(inference.id)
        logger.debug("%sInfer failed: %s", prefix, answer.error.message)


def _target(found: re.Match[str]) -> Target:
    return Target(**{name: value or "" for name, value in found.groupdict().items()})
