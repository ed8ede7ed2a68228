"""The SageMaker endpoint: one default model, or models that the service loads and unloads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import gateway_router
from penstock.gateway.call_guard import CallGuard
from penstock.gateway.clouds.errors import EndpointStartError
from penstock.gateway.clouds.redirect import Redirect
from penstock.gateway.clouds.sagemaker_models import MultiModelEndpoints
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.connections.listener import listening
from penstock.gateway.connections.open_connections import ConnectionRules
from penstock.gateway.control_bodies import ControlBodies
from penstock.gateway.inference.body_memory import BodyMemory
from penstock.gateway.json.thread import JsonThread
from penstock.gateway.replies import PLAIN, method_not_allowed, reply
from penstock.server.server import InferenceServer
from penstock.settings import Feature, HttpSettings, restriction_of

_SERVICE = "Sagemaker"
_NO_MODEL = "unspecified_SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
_TYPES = ("infer", "generate", "generate_stream")
_MODES = ("ready", "live")


@dataclass(frozen=True, slots=True)
class _Environment:
    """The service's environment variables."""

    model: str
    inference_type: str
    ping_mode: str

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> _Environment:
        """Raises `EndpointStartError` for values that there are not."""
        kind = environment.get("SAGEMAKER_TRITON_INFERENCE_TYPE") or _TYPES[0]
        mode = environment.get("SAGEMAKER_TRITON_PING_MODE") or _MODES[0]
        model = environment.get("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME") or _NO_MODEL
        if kind not in _TYPES:
            raise _failure(
                f"Server has invalid inference type '{kind}'. Must be one of: {', '.join(_TYPES)}."
            )
        if mode not in _MODES:
            raise _failure(
                f"Server has invalid ping mode '{mode}'. Must be one of: {', '.join(_MODES)}."
            )
        return cls(model, kind, mode)


_failure = partial(EndpointStartError, _SERVICE)


@asynccontextmanager
async def open_sagemaker(
    server: InferenceServer,
    http: HttpSettings,
    port: int,
    root: Path,
    environment: Mapping[str, str],
    grace: ExitDeadline,
    rules: ConnectionRules | None = None,
) -> AsyncIterator[int]:
    """Serve SageMaker, which loads models from below `root`; yields the port.

    Raises `EndpointStartError` for an environment that says what there is not, and `OSError` if the
    address is not available.
    """
    known = _Environment.read(environment)
    thread, memory = JsonThread(), BodyMemory(server.messages)
    router = gateway_router(server, http, thread, memory=memory)
    redirect = Redirect(
        router, "sagemaker-triton", memory, lambda head: models.model_of(head) or known.model
    )
    guard = CallGuard(restriction_of(Feature.MODEL_REPOSITORY, http.restrictions), ())
    models = MultiModelEndpoints(server, redirect, ControlBodies(thread), guard, root)
    endpoint = _SagemakerEndpoint(redirect, models, known)
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
        thread.close()


class _SagemakerEndpoint:
    def __init__(
        self, redirect: Redirect, models: MultiModelEndpoints, known: _Environment
    ) -> None:
        self._redirect = redirect
        self._models = models
        self._known = known

    def start(self, call: HttpCall) -> None:
        """Begin to answer a call."""
        known = self._known
        if call.path == "/ping":
            self._redirect.start(call, call.method, f"/v2/health/{known.ping_mode}")
        elif call.path == "/invocations":
            if call.method == "POST":
                path = f"/v2/models/{known.model}/{known.inference_type}"
                self._redirect.start(call, "POST", path)
            else:
                call.send(method_not_allowed(("POST",)))
        elif not self._models.start(call):
            call.send(reply(status=400, content_type=PLAIN))
