"""`LocalServices`: handles the calls of model processes to the server (BLS, metrics, control)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from penstock.core.access import tell_own
from penstock.core.errors import InferenceError, UnsupportedError
from penstock.core.request import InferenceRequest, parse_version
from penstock.core.stream import ResponseStream
from penstock.hosting.link.messages import RETIRE
from penstock.metrics.custom import CustomMetrics
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.override import CONFIG
from penstock.models.serving.served_model import ServedModel
from penstock.server.server import InferenceServer

logger = logging.getLogger(__name__)


class LocalServices:
    """`ModelServices` of the server that started the model process.

    Requests are admitted while the server exits, since requests in flight may depend on them;
    loading and unloading follow the server's rules. A model whose engine is not healthy is unloaded
    in any mode of model control, if its backend asks for it.
    """

    def __init__(
        self, server: InferenceServer, lifecycle: ModelLifecycle, metrics: CustomMetrics
    ) -> None:
        self._server = server
        self._lifecycle = lifecycle
        self._metrics = metrics

    @property
    def propagates(self) -> bool:
        return self._server.tracer.propagates

    def infer(self, request: InferenceRequest) -> ResponseStream:
        return self._model(request.model_name, request.model_version).infer(request)

    def decoupled(self, name: str, version: str) -> bool:
        return self._model(name, version).decoupled

    def metric(self, owner: str, operation: str, arguments: Sequence[Any]) -> Any:
        return self._metrics.apply(owner, operation, arguments)

    def ended(self, owner: str) -> None:
        self._metrics.remove(owner)

    async def control(self, verb: str, arguments: Sequence[Any]) -> Any:
        if verb in ("load", "unload"):
            done = False
            try:
                await self._change(verb, arguments)
                done = True
            finally:
                tell_own(self._server.audit, verb, arguments[0], "model", failed=not done)
            return None
        if verb == RETIRE:
            (name,) = arguments
            logger.error("the engine of model '%s' is not healthy: it is unloaded", name)
            return await self._lifecycle.unload(name, cause="unhealthy")
        if verb == "ready":
            return await self._server.model_serves(*arguments)
        raise UnsupportedError(
            f"a model process asked for '{verb}', which is not a control operation"
        )

    async def _change(self, verb: str, arguments: Sequence[Any]) -> None:
        if verb == "load":
            name, config, files = arguments
            parameters = {CONFIG: config, **files} if config else files
            await self._server.load(name, parameters, trusted=True)
        else:
            name, dependents = arguments
            await self._server.unload(name, unload_dependents=dependents)

    def _model(self, name: str, version: str) -> ServedModel:
        number = parse_version(version)
        try:
            return self._lifecycle.catalog.find(name, number)
        except InferenceError as missed:
            return self._server.on_demand(name, number, missed)
