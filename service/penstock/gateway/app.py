"""The HTTP endpoint: the route table of KServe v2 and its extensions, and its listener."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.core.errors import InvalidRequestError
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.connections.listener import listening
from penstock.gateway.connections.open_connections import ConnectionRules
from penstock.gateway.control_bodies import ControlBodies
from penstock.gateway.inference.body_memory import BodyMemory
from penstock.gateway.inference.generate import GenerateEndpoints
from penstock.gateway.inference.infer import InferEndpoint
from penstock.gateway.json.fields import ABSENT
from penstock.gateway.json.helper import JsonHelper
from penstock.gateway.json_bodies import JsonBodies
from penstock.gateway.metrics import Scrape, metrics_route
from penstock.gateway.models import ModelEndpoints, ServerEndpoints
from penstock.gateway.openai.routes import openai_routes, restricted
from penstock.gateway.openapi.routes import docs_routes
from penstock.gateway.replies import PLAIN, Reply, json_reply
from penstock.gateway.repository import ReleaseEndpoints, RepositoryEndpoints
from penstock.gateway.router import Route, Router, Target
from penstock.gateway.settings import SettingsEndpoints
from penstock.gateway.shared_memory import CudaEndpoints, SystemEndpoints
from penstock.server.control_policy import ControlPolicy
from penstock.server.faces import Control, Inference, Repository, Views
from penstock.server.server import InferenceServer
from penstock.settings import Feature, HttpSettings, OpenAiSettings

NO_OPENAI = OpenAiSettings(enabled=False)

_MODEL = "/v2/models/(?P<model>[^/]+)"
_VERSION = _MODEL + "(?:/versions/(?P<version>[0-9]+))?"
_REPOSITORY = "/v2/repository(?:/(?P<repository>[^/]+))?"
_ALIASES = "/v2/repository/aliases"
_ALIAS = _ALIASES + "/(?P<alias>[^/]+)"
_REPOSITORY_MODEL = _REPOSITORY + "/models/(?P<model>[^/]+)"

_GET, _POST, _BOTH = ("GET",), ("POST",), ("GET", "POST")
_CHANGE = ("POST", "DELETE")
_SHOW_AND_CHANGE = ("GET", *_CHANGE)


@asynccontextmanager
async def open_gateway(
    server: InferenceServer,
    settings: HttpSettings,
    grace: ExitDeadline,
    rules: ConnectionRules | None = None,
    openai: OpenAiSettings = NO_OPENAI,
) -> AsyncIterator[int]:
    """Serve HTTP, with OpenAI's API where that is enabled; yields the port.

    Raises `OSError` if the address is not available.
    On exit, requests and streams in flight get the rest of `grace` to finish.
    """
    helper, memory = JsonHelper(), BodyMemory(server.messages)
    router = gateway_router(server, settings, helper, openai, memory)
    address, port = settings.address, settings.port
    reuse = settings.reuse_port
    try:
        async with listening(
            router.start,
            "HTTP",
            address,
            port,
            grace,
            rules,
            reserve=memory.reserve,
            reuse_port=reuse,
            tls=settings.tls,
        ) as port:
            yield port
    finally:
        helper.close()


@asynccontextmanager
async def open_openai(
    server: InferenceServer,
    http: HttpSettings,
    openai: OpenAiSettings,
    scrape: Scrape,
    grace: ExitDeadline,
    rules: ConnectionRules | None = None,
) -> AsyncIterator[int]:
    """Serve OpenAI's API on a port of its own, with health and metrics, as Triton has it (OA-08).

    Yields the port. Raises `OSError` if it is not available.
    """
    helper = JsonHelper()
    bodies = JsonBodies(http.max_input_size, helper, http.max_json_values)
    metrics = restricted(metrics_route(scrape), Feature.METRICS, openai)
    routes = [*openai_routes(server, http, openai, bodies), metrics]
    router = Router(routes, http.restrictions, _pages(openai), server.access)
    port = openai.port or 0
    try:
        async with listening(
            router.start, "OpenAI", http.host, port, grace, rules, tls=http.tls
        ) as port:
            yield port
    finally:
        helper.close()


def gateway_router(
    server: InferenceServer,
    settings: HttpSettings,
    helper: JsonHelper,
    openai: OpenAiSettings = NO_OPENAI,
    memory: BodyMemory | None = None,
) -> Router:
    """The routes of the HTTP endpoint; large JSON is decoded by `helper`."""
    bodies = JsonBodies(settings.max_input_size, helper, settings.max_json_values)
    small = ControlBodies(helper)
    policy = server.control_policy.behind(settings.restrictions)
    routes = [
        *_inference_routes(server, settings, bodies, memory or BodyMemory(server.messages)),
        *_server_routes(server),
        *_model_routes(server),
        *_repository_routes(server, bodies, small, policy),
        *_engine_routes(server, small),
        *_settings_routes(server, small, policy),
        *_memory_routes(server, small),
        *openai_routes(server, settings, openai, bodies),
        *(docs_routes(server, openai=openai.enabled) if settings.docs else ()),
    ]
    return Router(routes, settings.restrictions, _pages(openai), server.access)


def _pages(openai: OpenAiSettings) -> list[str]:
    """The web pages that may change the server: those with a name, of which `*` is none."""
    return [origin for origin in openai.allowed_origins if origin != "*"]


def _inference_routes(
    server: Inference, settings: HttpSettings, bodies: JsonBodies, memory: BodyMemory
) -> list[Route]:
    infer = InferEndpoint(server, settings, bodies, memory)
    generate = GenerateEndpoints(server, settings, bodies)
    feature = Feature.INFERENCE
    return [
        Route(f"{_VERSION}/infer", _POST, infer.infer, feature, PLAIN, infer.start),
        Route(f"{_VERSION}/generate", _POST, generate.generate, feature),
        Route(f"{_VERSION}/generate_stream", _POST, generate.generate_stream, feature),
    ]


def _server_routes(server: Views) -> list[Route]:
    whole, models = ServerEndpoints(server), ModelEndpoints(server)
    return [
        Route("/v2/health/live", _GET, whole.live, Feature.HEALTH, PLAIN),
        Route("/v2/health/ready", _GET, whole.ready, Feature.HEALTH, PLAIN),
        Route("/v2", _GET, whole.metadata, Feature.METADATA),
        # Before the routes of models: `stats` here is not a model's name.
        Route("/v2/models/stats", _GET, models.statistics, Feature.STATISTICS),
    ]


def _model_routes(server: Views) -> list[Route]:
    models = ModelEndpoints(server)
    return [
        Route(f"{_VERSION}/ready", _GET, models.ready, Feature.HEALTH, PLAIN),
        Route(f"{_VERSION}/config", _GET, models.config, Feature.MODEL_CONFIG),
        Route(f"{_VERSION}/stats", _GET, models.statistics, Feature.STATISTICS),
        Route(_VERSION, _GET, models.metadata, Feature.METADATA),
    ]


def _repository_routes(
    server: Repository, bodies: JsonBodies, small: ControlBodies, policy: ControlPolicy
) -> list[Route]:
    feature = Feature.MODEL_REPOSITORY
    repository = RepositoryEndpoints(server, bodies, small, policy)
    releases = ReleaseEndpoints(server, small)
    return [
        Route(_ALIASES, _GET, releases.listed, feature),
        Route(_ALIAS, _SHOW_AND_CHANGE, releases.shown, feature),
        Route(f"{_ALIAS}/promote", _POST, releases.promoted, feature),
        Route(f"{_ALIAS}/rollback", _POST, releases.rolled_back, feature),
        Route(f"{_REPOSITORY}/index", _POST, repository.index, feature),
        Route(f"{_REPOSITORY_MODEL}/load", _POST, repository.load, feature),
        Route(f"{_REPOSITORY_MODEL}/unload", _POST, repository.unload, feature),
    ]


def _engine_routes(server: Control, bodies: ControlBodies) -> list[Route]:
    engine = EngineEndpoints(server, bodies)
    feature = Feature.ENGINE_CONTROL
    return [
        Route(f"{_VERSION}/engine/(?P<action>[^/]+)", _POST, engine.act, feature),
        Route(f"{_VERSION}/adapters", _GET, engine.adapters, feature),
        Route(f"{_VERSION}/adapters/(?P<adapter>.+)", _CHANGE, engine.change_adapter, feature),
    ]


def _settings_routes(server: Control, bodies: ControlBodies, policy: ControlPolicy) -> list[Route]:
    settings = SettingsEndpoints(server, bodies, policy)
    return [
        Route("/v2/trace/setting", _BOTH, settings.trace, Feature.TRACE),
        Route(f"{_MODEL}/trace/setting", _BOTH, settings.trace, Feature.TRACE),
        Route("/v2/logging", _BOTH, settings.log, Feature.LOGGING),
    ]


def _memory_routes(server: Inference, bodies: ControlBodies) -> list[Route]:
    feature = Feature.SHARED_MEMORY
    routes = []
    for kind, endpoints in (
        ("system", SystemEndpoints(server.regions, bodies)),
        ("cuda", CudaEndpoints(server.regions, bodies)),
    ):
        path = f"/v2/{kind}sharedmemory(?:/region/(?P<region>[^/]+))?"
        routes += [
            Route(f"{path}/status", _GET, endpoints.status, feature),
            Route(f"{path}/register", _POST, endpoints.register, feature),
            Route(f"{path}/unregister", _POST, endpoints.unregister, feature),
        ]
    return routes


LIST, ADD, REMOVE = "list-adapters", "add-adapter", "remove-adapter"
"""Actions of `Controllable.control` that have paths of their own."""


class EngineEndpoints:
    """Handlers of `.../engine/{action}` and `.../adapters`; a body is an object of arguments."""

    def __init__(self, server: Control, bodies: ControlBodies) -> None:
        self._server = server
        self._bodies = bodies

    async def act(self, call: HttpCall, target: Target) -> Reply:
        return await self._control(target, target.action, await self._arguments(call, target))

    async def adapters(self, _: HttpCall, target: Target) -> Reply:
        return await self._control(target, LIST, {})

    async def change_adapter(self, call: HttpCall, target: Target) -> Reply:
        """Add an adapter, or remove one."""
        named = {"name": target.adapter}
        if call.method == "DELETE":
            return await self._control(target, REMOVE, named)
        return await self._control(target, ADD, {**await self._arguments(call, target), **named})

    async def _arguments(self, call: HttpCall, target: Target) -> dict[str, Any]:
        """The arguments of a command, which are read only where commands may be given at all."""
        self._server.check_engine_control(target.model, target.version)
        return await self._bodies.read(call, _arguments, optional=True)

    async def _control(self, target: Target, action: str, arguments: dict[str, Any]) -> Reply:
        done = await self._server.control(target.model, target.version, action, arguments)
        return json_reply(
            {"model_name": done.name, "model_version": done.version, "instances": done.instances}
        )


def _arguments(body: Any) -> dict[str, Any]:
    if body is ABSENT:
        return {}
    if not isinstance(body, dict):
        raise InvalidRequestError("the body must be a JSON object of arguments")
    return body
