"""What the server does for models that live in processes: other models, and control of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.core.custom_metrics import CustomMetrics
from penstock.core.errors import InferenceError, UnsupportedError
from penstock.core.request import InferenceRequest, parse_version
from penstock.core.stream import ResponseStream
from penstock.models.lifecycle import ModelLifecycle
from penstock.models.model import Model


class LocalServices:
    """`ModelServices` of the server that the model process belongs to."""

    def __init__(self, lifecycle: ModelLifecycle, metrics: CustomMetrics) -> None:
        self._lifecycle = lifecycle
        self._metrics = metrics

    def infer(self, request: InferenceRequest) -> ResponseStream:
        return self._model(request.model_name, request.model_version).infer(request)

    def decoupled(self, name: str, version: str) -> bool:
        return self._model(name, version).config.decoupled

    def metric(self, owner: str, operation: str, arguments: Sequence[Any]) -> Any:
        return self._metrics.apply(owner, operation, arguments)

    def ended(self, owner: str) -> None:
        self._metrics.remove(owner)

    async def control(self, verb: str, arguments: Sequence[Any]) -> Any:
        if verb == "load":
            name, config, files = arguments
            return await self._load(name, config, files)
        if verb == "unload":
            name, dependents = arguments
            return await self._lifecycle.unload(name, unload_dependents=bool(dependents))
        if verb == "ready":
            return await self._ready(*arguments)
        raise UnsupportedError(f"a model process asked for '{verb}', which is unknown")

    async def _load(self, name: str, config: str | None, files: Any) -> None:
        if config or files:
            raise UnsupportedError(
                "loading a model with a configuration or files of the caller is not supported yet"
            )
        await self._lifecycle.load(name)

    async def _ready(self, name: str, version: str) -> bool:
        try:
            model = self._model(name, version)
        except InferenceError:
            return False
        return await model.ready()

    def _model(self, name: str, version: str) -> Model:
        return self._lifecycle.find(name, parse_version(version))
