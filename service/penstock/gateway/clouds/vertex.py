"""The Vertex AI endpoint: predictions of a default model, or another call named by a header."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

from penstock.access.current import SERVER_ITSELF, acting_as
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import gateway_router
from penstock.gateway.call_guard import CallGuard, PolicyGuard
from penstock.gateway.clouds.errors import EndpointStartError
from penstock.gateway.clouds.redirect import Redirect, default_for
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.connections.listener import listening
from penstock.gateway.connections.open_connections import ConnectionRules
from penstock.gateway.inference.body_memory import BodyMemory, model_of
from penstock.gateway.json.helper import JsonHelper
from penstock.gateway.metrics import Scrape, send_metrics
from penstock.gateway.replies import PLAIN, Refusal, error_reply, method_not_allowed, reply
from penstock.http1.requests import RequestHead
from penstock.server.server import InferenceServer
from penstock.settings import Feature, HttpSettings, restriction_of

_SERVICE = "Vertex AI"
_UNSEEN = "unspecified_vertex_ai_default_model"
_REDIRECT = "x-vertex-ai-triton-redirect"
_POSTED = re.compile(r"/v2/models/[^/]+(?:/versions/[0-9]+)?/(?:infer|generate|generate_stream)")
_OPEN = re.compile(r"/v2(?:/health/[^/]+|/models/.*)?")
_CLOSED = re.compile(r"/v2/(?:systemsharedmemory|cudasharedmemory|repository)(?:/.*)?")


@asynccontextmanager
async def open_vertex(
    server: InferenceServer,
    http: HttpSettings,
    port: int,
    default_model: str,
    environment: Mapping[str, str],
    grace: ExitDeadline,
    scrape: Scrape,
    rules: ConnectionRules | None = None,
) -> AsyncIterator[int]:
    """Serve Vertex AI, once models are loaded; yields the port.

    Raises `EndpointStartError` where the environment names no routes, or no model is the default
    one, and `OSError` if the address is not available.
    """
    predict = _route("AIP_PREDICT_ROUTE", environment.get("AIP_PREDICT_ROUTE"))
    health = _route("AIP_HEALTH_ROUTE", environment.get("AIP_HEALTH_ROUTE"))
    with acting_as(SERVER_ITSELF):
        model = await _default_model(server, default_model)
    helper, memory = JsonHelper(), BodyMemory(server.messages)
    router = gateway_router(server, http, helper, memory=memory)
    redirect = Redirect(router, "vertex-ai-triton", memory, partial(_asked, model))
    gate, restriction = server.access, restriction_of(Feature.STATISTICS, http.restrictions)
    guard = CallGuard(Feature.METRICS, restriction, None)
    if gate is not None:
        guard = PolicyGuard(gate, Feature.METRICS, restriction, None)
    default = partial(default_for, gate, model=model, unseen=_UNSEEN)
    endpoint = _VertexEndpoint(redirect, default, predict, health, scrape, guard)
    try:
        async with listening(
            endpoint.start,
            _SERVICE,
            http.host,
            port,
            grace,
            rules,
            reserve=redirect.reserve,
            tls=http.tls,
        ) as port:
            yield port
    finally:
        helper.close()


class _VertexEndpoint:
    def __init__(
        self,
        redirect: Redirect,
        default: Callable[[HttpCall], str],
        predict: str,
        health: str,
        scrape: Scrape,
        metrics_guard: CallGuard,
    ) -> None:
        self._redirect = redirect
        self._default = default
        self._predict = predict
        self._health = health
        self._scrape = scrape
        self._metrics_guard = metrics_guard

    def start(self, call: HttpCall) -> None:
        """Begin to answer a call."""
        target = call.headers.get(_REDIRECT)
        if call.path == self._health:
            self._redirect.start(call, call.method, "/v2/health/ready")
        elif call.path != self._predict:
            call.send(reply(status=400, content_type=PLAIN))
        elif call.method != "POST":
            call.send(method_not_allowed(("POST",)))
        elif target is None:
            self._redirect.start(call, "POST", f"/v2/models/{self._default(call)}/infer")
        else:
            self._redirected(call, "/" + target)

    def _redirected(self, call: HttpCall, path: str) -> None:
        """Answer what the header names: calls of models and of health, and metrics."""
        if path == "/metrics":
            self._metrics(call, path)
        elif _CLOSED.fullmatch(path):
            call.send(error_reply(f"'{path[1:]}' cannot be reached through this endpoint", 403))
        elif _POSTED.fullmatch(path):
            self._redirect.start(call, "POST", path)
        elif _OPEN.fullmatch(path):
            self._redirect.start(call, "GET", path)
        else:
            call.send(reply(status=400, content_type=PLAIN))

    def _metrics(self, call: HttpCall, path: str) -> None:
        """Answer the metrics, which are restricted as the statistics of models are."""
        call.feature = Feature.STATISTICS
        if refusal := self._metrics_guard.refusal(call):
            call.send(Refusal(refusal, PLAIN))
            return
        call.redirect("GET", path, call.headers)
        call.run(send_metrics(call, self._scrape))


_failure = partial(EndpointStartError, _SERVICE)


def _asked(default: str, head: RequestHead) -> str:
    """The model of a call: that of the header, or the default one."""
    target = head.headers.get(_REDIRECT)
    return default if target is None else model_of("/" + target)


def _route(name: str, route: str | None) -> str:
    if not route:
        raise _failure(f"{name} is not defined for Vertex AI endpoint")
    return route


async def _default_model(server: InferenceServer, name: str) -> str:
    """The model of predictions: the given one if it is loaded, else the only one."""
    ready = sorted({entry.name for entry in await server.index(ready_only=True)})
    if name:
        if name not in ready:
            raise _failure(f"Expect the default model '{name}' is loaded")
        return name
    if len(ready) != 1:
        raise _failure(
            "Expect the model repository contains only a single model if default model is not"
            " specified"
        )
    return ready[0]
